package evictions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// spoilt is a handler whose states are good up to a number. Every run that resumes from a
// later state fails. It is for one job.
type spoilt struct {
	good    int  // the highest number of a good state
	all     int  // the number with which the job is done
	large   bool // states are streams
	asks    bool // it steps back itself
	resumed []int
	waits   chan struct{} // if not nil, a run that stepped back waits for it before it saves
	stepped atomic.Bool   // a run stepped back
}

func (s *spoilt) progress(n int) job.Progress {
	if s.large {
		return rig.LargeProgress(n)
	}
	return job.Progress{State: []byte{byte(n)}, Version: 3}
}

func (s *spoilt) saved(j *job.Job) (int, error) {
	if s.large {
		return savedLarge(j)
	}
	state, _, ok := j.Saved()
	if !ok {
		return 0, nil
	}
	return int(state[0]), nil
}

func (s *spoilt) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	n, err := s.saved(j)
	if err != nil {
		return nil, err
	}
	s.resumed = append(s.resumed, n)
	if n > s.good && s.asks {
		ok, err := j.StepBack()
		if err != nil || !ok {
			return nil, errors.Join(errors.New("no state can be used"), err)
		}
		if n, err = s.saved(j); err != nil {
			return nil, err
		}
		s.resumed = append(s.resumed, n)
	}
	if n > s.good {
		return nil, fmt.Errorf("state %d is bad", n)
	}
	if j.SteppedBack() {
		if s.stepped.Store(true); s.waits != nil {
			select {
			case <-s.waits:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		s.good = s.all
	}
	for n < s.all {
		n++
		j.Report(s.progress(n))
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(2 * time.Minute): // so that each state is recorded
		}
		if n == s.good+1 {
			return nil, errors.New("it diverged")
		}
	}
	return []byte("finished"), nil
}

// TestPreviousState: a bad state does not end a job whose kind keeps the one before it.
func TestPreviousState(t *testing.T) {
	limits := job.Limits{MaxFailures: 3}
	for _, row := range []struct {
		name    string
		work    *spoilt
		keeps   bool
		resumed []int
		steps   int
		poison  string // part of the reason; empty for a job that is done
	}{
		{"one state is kept", &spoilt{good: 2, all: 4}, false, []int{0, 3, 3}, 0,
			"3 failures in a row without progress, the last: state 3 is bad"},
		{"the last attempt", &spoilt{good: 2, all: 4}, true, []int{0, 3, 2}, 1, ""},
		{"the last attempt, large states", &spoilt{good: 2, all: 4, large: true}, true, []int{0, 3, 2}, 1, ""},
		{"asked for", &spoilt{good: 2, all: 4, asks: true}, true, []int{0, 3, 2}, 1, ""},
		{"asked for, large states", &spoilt{good: 2, all: 4, large: true, asks: true}, true, []int{0, 3, 2}, 1, ""},
		{"asked for, one state is kept", &spoilt{good: 2, all: 4, asks: true}, false, []int{0, 3, 3}, 0,
			"3 failures in a row without progress, the last: no state can be used"},
		{"only one was saved", &spoilt{good: 0, all: 4}, true, []int{0, 1, 1}, 0,
			"3 failures in a row without progress, the last: state 1 is bad"},
	} {
		t.Run(row.name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				work := row.work
				h := job.WithLimits(work, limits)
				if row.keeps {
					h = job.KeepPreviousState(h)
				}
				c := &rig.Counter{}
				b.Put("a", "h", "")
				p := b.Start("vm_0", job.Kinds{"h": h}, rig.WithObserver(c))
				b.WaitFor("the end of the job", 24*time.Hour, func() bool { return b.Record("a").Status.Final() })
				r := b.Record("a")
				if r.StepsBack != row.steps || !slices.Equal(work.resumed, row.resumed) {
					t.Errorf("resumed from %v, %d steps back, want from %v, %d", work.resumed, r.StepsBack, row.resumed, row.steps)
				}
				if row.poison == "" && r.Status != checkpoint.Done || row.poison != "" && (r.Status != checkpoint.Poison ||
					!strings.Contains(r.Reason, row.poison)) {
					t.Errorf("record = %s, %q, want the reason %q, or done for none", r.Status, r.Reason, row.poison)
				}
				if lines := p.Log.Find("job resumes from the state before the last"); len(lines) != row.steps ||
					c.Of("stepped back")["stepped back"] != row.steps {
					t.Errorf("log = %v, %d observed, want %d steps back", lines, c.Of("stepped back")["stepped back"], row.steps)
				}
			})
		})
	}
}

// TestBothStatesAreBad: a job whose both states are bad fails as any other, with a reason
// that names them, and keeps them for a replay.
func TestBothStatesAreBad(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &spoilt{good: 2, all: 3, asks: true}
		first := b.Start("vm_0", job.Kinds{"h": job.KeepPreviousState(job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			return work.Run(ctx, j)
		}))})
		b.Put("a", "h", "")
		b.WaitFor("two states", 24*time.Hour, func() bool { return b.Record("a").HasPrevious() })
		first.Stop()
		h := job.WithLimits(job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			tried := 0
			for {
				state, _, _ := j.OpenSaved()
				if data, err := io.ReadAll(state); err != nil || len(data) != 1 {
					t.Errorf("state = %q, %v, want a byte", data, err)
				}
				tried++
				if ok, err := j.StepBack(); !ok {
					return nil, errors.Join(fmt.Errorf("none of %d states can be used", tried), err)
				}
			}
		}), job.Limits{MaxFailures: 2})
		b.Start("vm_1", job.Kinds{"h": job.KeepPreviousState(h)})
		b.WaitFor("poison", time.Hour, func() bool { return b.Record("a").Status == checkpoint.Poison })
		r := b.Record("a")
		if !r.HasPrevious() || !strings.Contains(r.Reason, "states can be used") {
			t.Errorf("record = %+v, want poison with both states", r)
		}
	})
}

// TestEvictedAfterAStepBack: a job that is evicted before it has saved again finds both
// states as they were.
func TestEvictedAfterAStepBack(t *testing.T) {
	for _, large := range []bool{false, true} {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			work := &spoilt{good: 2, all: 4, asks: true, large: large, waits: make(chan struct{})}
			kinds := job.Kinds{"h": job.KeepPreviousState(work)}
			b.Put("a", "h", "")
			first := b.Start("vm_0", kinds)
			b.WaitFor("a step back", 24*time.Hour, func() bool { return work.stepped.Load() })
			first.Stop()
			if r := b.Record("a"); r.Status != checkpoint.Open || r.StepsBack != 1 || !r.HasPrevious() {
				t.Errorf("record = %+v, want it open with both states and 1 step back", r)
			}
			close(work.waits)
			b.Start("vm_1", kinds)
			b.WaitDone("a", 24*time.Hour)
			if r := b.Record("a"); r.StepsBack != 2 || !slices.Equal(work.resumed, []int{0, 3, 2, 3, 2}) {
				t.Errorf("resumed from %v, %d steps back, want from 0 3 2 3 2, 2", work.resumed, r.StepsBack)
			}
		})
	}
}
