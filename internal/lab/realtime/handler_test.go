package realtime

import (
	"context"
	"encoding/json"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/replay"
	"github.com/spotworker/spotworker/job"
)

// ran is the outcome of a run of the handler.
type ran struct {
	took   time.Duration
	states []time.Duration // that it reported
	err    error
}

// last returns the last state.
func (r ran) last() time.Duration {
	if len(r.states) == 0 {
		return -1
	}
	return r.states[len(r.states)-1]
}

// handle runs the handler, and stops it after a time. Each state is saved.
func handle(t *testing.T, w work, from, stop time.Duration) (r ran) {
	t.Helper()
	payload, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	var saved *job.Progress
	if from > 0 {
		state, _ := json.Marshal(from)
		saved = &job.Progress{State: state}
	}
	j := job.New(job.Spec{Payload: payload}, saved)
	job.ControlOf(j).OnReport(func(p *job.Progress) {
		state := p.State
		if p.Stream != nil { // a save, which opens the state twice
			for range 2 {
				opened, err := p.Stream()
				if err != nil {
					t.Fatal(err)
				}
				state, _ = io.ReadAll(opened)
			}
		}
		var done time.Duration
		if err := json.Unmarshal(state, &done); err != nil {
			t.Error(err)
		}
		r.states = append(r.states, done)
	})
	ctx, cancel := context.WithTimeout(t.Context(), stop)
	defer cancel()
	began := time.Now()
	_, r.err = wait(ctx, j)
	r.took = time.Since(began)
	return r
}

// TestWait: the handler takes the time of its work, reports how far it is, and is as long in resuming
// and stopping as the scenario says.
func TestWait(t *testing.T) {
	of := func(d time.Duration) replay.Duration { return replay.Duration{Duration: d} }
	plain := replay.Work{Length: of(10 * s), Restore: of(2 * s), Stop: of(3 * s)}
	with := func(change func(*work)) work {
		w := work{Work: plain}
		change(&w)
		return w
	}
	for name, c := range map[string]struct {
		work       work
		from, stop time.Duration
		took, last time.Duration
		stopped    bool
	}{
		"to its end":      {with(func(*work) {}), 0, time.Hour, 10 * s, 10 * s, false},
		"resumed":         {with(func(*work) {}), 4 * s, time.Hour, 8 * s, 10 * s, false},
		"stopped":         {with(func(*work) {}), 0, 4*s + 10*time.Millisecond, 7*s + 10*time.Millisecond, 4*s + 10*time.Millisecond, true},
		"no last state":   {with(func(w *work) { w.NoLast = true }), 0, 4*s + 10*time.Millisecond, 7*s + 10*time.Millisecond, 4 * s, true},
		"states":          {with(func(w *work) { w.States = of(3 * s) }), 0, 8 * s, 11 * s, 6 * s, true},
		"never":           {with(func(w *work) { w.Never = true }), 0, 4 * s, 7 * s, -1, true},
		"while it starts": {with(func(*work) {}), 4 * s, s, s, -1, true},
		"stands still":    {with(func(w *work) { w.Save, w.States = of(500*time.Millisecond), of(5*s) }), 0, time.Hour, 11 * s, 10 * s, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := handle(t, c.work, c.from, c.stop)
				if got.took != c.took || got.last() != c.last || (got.err != nil) != c.stopped {
					t.Errorf("it took %s, last state %s, error %v; want %s, %s, stopped %t", got.took, got.last(), got.err, c.took, c.last, c.stopped)
				}
			})
		})
	}
}

// TestStopwatch: only the time without any stop counts.
func TestStopwatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stopwatch{started: time.Now()}
		for _, step := range []struct {
			do   func()
			want time.Duration
		}{{func() {}, s}, {w.stop, s}, {w.stop, s}, {w.resume, s}, {w.resume, 2 * s}, {w.stop, 2 * s}, {w.resume, 3 * s}} {
			step.do()
			time.Sleep(s)
			if got := w.worked(); got != step.want {
				t.Fatalf("worked() = %s, want %s", got, step.want)
			}
		}
	})
}
