package outages

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/worker/intake"
	"github.com/spotworker/spotworker/job"
)

// longestIdle is the bound on the time that a job waits beside a free slot after its worker
// died: the visibility timeout, the longest pause between two claims, and calls.
func longestIdle(visibility time.Duration) time.Duration {
	return visibility + intake.LongestPoll*5/4 + 5*time.Second
}

// withVisibility sets the visibility timeout of a worker with 16 slots.
func withVisibility(d time.Duration) func(*worker.Config) {
	return func(c *worker.Config) { c.Concurrency, c.Visibility = 16, d }
}

// TestDeathAfterABurst: storage refuses all calls for a few seconds from a renewal on, and
// the worker dies soon after. Its jobs continue as soon as after any other death.
func TestDeathAfterABurst(t *testing.T) {
	const jobs = 16
	for _, tt := range []struct{ visibility, burst time.Duration }{
		{rig.DefaultVisibility, 3 * time.Second}, {rig.DefaultVisibility, 9 * time.Second}, {6 * time.Second, 2 * time.Second},
	} {
		t.Run(fmt.Sprintf("%s of refusals with a visibility of %s", tt.burst, tt.visibility), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				work := &steady{seen: map[string]time.Time{}}
				ids := b.PutSteps(jobs)
				first := b.Start("vm_0", job.Kinds{"steps": work}, withVisibility(tt.visibility))
				b.WaitFor("all jobs run", time.Minute, func() bool { return work.jobs() == jobs })
				b.Start("vm_1", job.Kinds{"steps": work}, withVisibility(tt.visibility))
				time.Sleep(30 * time.Second)
				var mu sync.Mutex
				var begun time.Time
				refused := 0
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					mu.Lock()
					defer mu.Unlock()
					if begun.IsZero() && c.Operation == storage.OpUpdateMessage {
						begun = time.Now()
					}
					if begun.IsZero() || time.Since(begun) >= tt.burst {
						return storage.Fault{}
					}
					if c.Operation == storage.OpUpdateMessage {
						refused++
					}
					return storage.Fault{Refuse: storage.ServerBusy(0)}
				})
				b.WaitFor("a burst", time.Minute, func() bool { mu.Lock(); defer mu.Unlock(); return !begun.IsZero() })
				time.Sleep(tt.burst + 5*time.Second)
				mu.Lock()
				n := refused
				mu.Unlock()
				if n < 2*jobs {
					t.Errorf("renewals refused = %d, want at least %d", n, 2*jobs)
				}
				first.KillNoWait()
				died := time.Now()
				b.WaitFor("all jobs on the other worker", 10*time.Minute, func() bool {
					return !slices.ContainsFunc(ids, func(id string) bool { return b.Record(id).Generation < 2 })
				})
				if took, most := time.Since(died), longestIdle(tt.visibility); took > most {
					t.Errorf("death to the last job's next claim = %s, want %s at most", took, most)
				}
				if n := len(first.Log.Find("message lost; stopping the job")); n != 0 {
					t.Errorf("jobs that lost their message in the burst = %d, want 0", n)
				}
			})
		})
	}
}

// steady is a handler that takes a step each second until it is stopped, and records when
// each job did so last.
type steady struct {
	mu   sync.Mutex
	seen map[string]time.Time
}

// Run implements job.Handler.
func (s *steady) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	for n := uint64(0); ; n++ {
		s.mu.Lock()
		s.seen[j.ID] = time.Now()
		s.mu.Unlock()
		j.Report(job.Progress{State: binary.BigEndian.AppendUint64(nil, n)})
		if !rig.SleepFor(ctx, time.Second) {
			return nil, context.Cause(ctx)
		}
	}
}

func (s *steady) jobs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// longestSilence returns how long ago the job took a step for which that is longest.
func (s *steady) longestSilence(now time.Time) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.seen {
		longest = max(longest, now.Sub(at))
	}
	return longest
}

// TestDeathsInStorms: one call in eight fails, storage refuses all calls for 5 s now and
// then, and workers die. No job waits longer beside free slots than where storage is well.
func TestDeathsInStorms(t *testing.T) {
	const jobs, workers = 12, 3
	deaths := proof.Times(3, 12)
	for _, visibility := range []time.Duration{4 * time.Second, rig.DefaultVisibility} {
		t.Run("visibility "+visibility.String(), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				random, mu := rand.New(rand.NewPCG(3, 7)), sync.Mutex{}
				begun := time.Now()
				b.Server.OnCall(func(storage.Call) storage.Fault {
					mu.Lock()
					defer mu.Unlock()
					if time.Since(begun)%(25*time.Second) >= 20*time.Second {
						return storage.Fault{Refuse: storage.ServerBusy(0)}
					}
					switch random.IntN(24) {
					case 0:
						return storage.Fault{Refuse: storage.ServerBusy(0)}
					case 1:
						return storage.Fault{Refuse: &storage.Error{Status: 500, Code: "InternalError", Message: "no"}}
					case 2:
						return storage.Fault{DropRequest: true}
					}
					return storage.Fault{}
				})
				work := &steady{seen: map[string]time.Time{}}
				ids := b.PutSteps(jobs)
				var fleet []*rig.Process
				for i := range workers {
					fleet = append(fleet, b.Start("vm_"+strconv.Itoa(i), job.Kinds{"steps": work}, withVisibility(visibility)))
				}
				b.WaitFor("all jobs run", 2*time.Minute, func() bool { return work.jobs() == len(ids) })
				var worst time.Duration
				for n := range deaths {
					mu.Lock()
					wait, victim := 20*time.Second+time.Duration(random.Int64N(int64(50*time.Second))), random.IntN(workers)
					mu.Unlock()
					for range int(wait / time.Second) {
						time.Sleep(time.Second)
						worst = max(worst, work.longestSilence(time.Now()))
					}
					fleet[victim].KillNoWait()
					fleet[victim] = b.Start(fmt.Sprintf("vm_%d_%d", victim, n), job.Kinds{"steps": work}, withVisibility(visibility))
				}
				t.Logf("longest time without a step: %s", worst)
				if most := 45 * time.Second; worst > most {
					t.Errorf("longest time without a step beside free slots = %s, want %s at most", worst, most)
				}
			})
		})
	}
}
