package hostile

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/job"
)

// machineFaults are handlers that fail as every job does on a machine with that fault.
var machineFaults = map[string]job.HandlerFunc{
	"nothing can be started": func(context.Context, *job.Job) ([]byte, error) {
		return nil, job.Interrupted(errors.New("no space left on device"))
	},
	"a library is missing": func(context.Context, *job.Job) ([]byte, error) {
		return nil, errors.New("exit status 1: No module named 'numpy'")
	},
	"a disk fails after a while": func(ctx context.Context, _ *job.Job) ([]byte, error) {
		rig.SleepFor(ctx, 3*time.Second)
		return nil, errors.New("exit status 1: input/output error")
	},
	"the handler panics": func(context.Context, *job.Job) ([]byte, error) { panic("nil map") },
	"the handler reports and fails": func(_ context.Context, j *job.Job) ([]byte, error) {
		j.Report(job.Progress{Text: "starting"})
		return nil, errors.New("no such device")
	},
}

// TestSickWorker: a worker on which every job fails runs beside a healthy one. None of
// 1,000 jobs is dead-lettered, and the healthy worker does them in little more time
// than alone. Every write is checked against the rules of the histories.
func TestSickWorker(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	for name, sick := range machineFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				const jobs = 1000
				rec := b.AddRecorder()
				for i := range jobs {
					b.Put(fmt.Sprintf("job-%d", i), "work", "")
				}
				attempts := &atomic.Int64{}
				ill := b.Start("vm_sick", job.Kinds{"work": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
					rec.HandlerFailed(j.ID, "vm_sick")
					return attempted(sick, attempts).Run(ctx, j)
				})})
				b.Start("vm_well", job.Kinds{"work": &rig.Steps{N: 1, Each: time.Second}})
				begun := time.Now()
				b.WaitFor("no message left", time.Hour, func() bool { return b.MessagesLeft() == 0 })
				took := time.Since(begun)
				rec.Check(t)
				if n := len(b.PoisonMessages()); n > 0 {
					t.Errorf("%d healthy jobs were poisoned, the first for %q", n, b.PoisonMessages()[0].Reason)
				}
				most := 0
				for i := range jobs {
					r := b.Record(fmt.Sprintf("job-%d", i))
					if r.Status != checkpoint.Done {
						t.Errorf("job %d is %q, want done", i, r.Status)
					}
					most = max(most, r.Generation)
				}
				// Alone, the healthy worker takes 250 s.
				if took > 300*time.Second {
					t.Errorf("1,000 jobs took %s, want less than 300 s", took)
				}
				if n := attempts.Load(); n > 30 {
					t.Errorf("%d jobs were tried on the sick machine, want at most 30", n)
				}
				if len(ill.Log.Find("circuit breaker open: leaving jobs of this kind to others")) == 0 {
					t.Error("the log does not report that the breaker opened")
				}
				t.Logf("0 of %d jobs poisoned in %s; %d tried on the sick machine, no job begun more than %d times", jobs, took.Round(time.Second),
					attempts.Load(), most)
			})
		})
	}
}

// attempted counts the runs of a handler.
func attempted(h job.Handler, n *atomic.Int64) job.HandlerFunc {
	return func(ctx context.Context, j *job.Job) ([]byte, error) {
		n.Add(1)
		return h.Run(ctx, j)
	}
}

// failing is a handler whose jobs always fail.
var failing = job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) { return nil, errors.New("this input is no good") })

// TestSickMachineAlone: the only healthy worker is busy for two hours, so that a job
// is retried all that time by the two workers of a machine on which it always fails.
// It is not dead-lettered, and the healthy worker does it when it is free.
func TestSickMachineAlone(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Put("long", "long", "")
		long, fails := &rig.Steps{N: 120, Each: time.Minute}, &atomic.Int64{}
		b.Start("vm_well", job.Kinds{"long": long, "work": rig.Echo}, func(c *worker.Config) { c.Concurrency = 1 })
		b.WaitFor("the healthy worker is busy", time.Minute, func() bool { return b.Record("long").Status == checkpoint.Running })
		b.Put("a", "work", "1")
		for _, instance := range []string{"0", "1"} {
			b.Start("vm_sick", job.Kinds{"work": attempted(failing, fails)}, func(c *worker.Config) { c.Instance = instance })
		}
		b.WaitDone("a", 125*time.Minute)
		if n := fails.Load(); n < job.DefaultMaxFailures || n > 13 {
			t.Errorf("%d failures on the sick machine, want at least %d, so that this test covers something, and not more than one in 10 minutes",
				n, job.DefaultMaxFailures)
		}
		t.Logf("%d failures on one machine counted as %d", fails.Load(), 1)
	})
}

// TestBadJobs: jobs that fail on every machine are dead-lettered in bounded time, and
// do not delay jobs of other kinds.
func TestBadJobs(t *testing.T) {
	for _, tt := range proof.Some(t, 2, []struct {
		workers, bad int
		within       time.Duration
	}{
		{workers: 1, bad: 1, within: 4 * time.Minute},
		{workers: 1, bad: 30, within: 20 * time.Minute},
		{workers: 2, bad: 1, within: 20 * time.Minute},
		{workers: 2, bad: 30, within: time.Hour},
	}) {
		t.Run(fmt.Sprintf("%d of them, %d workers", tt.bad, tt.workers), func(t *testing.T) {
			t.Parallel()
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				const good = 50
				for i := range max(tt.bad, good) {
					if i < tt.bad {
						b.Put(fmt.Sprintf("bad-%d", i), "bad", "")
					}
					if i < good {
						b.Put(fmt.Sprintf("good-%d", i), "good", "")
					}
				}
				work := &rig.Steps{N: 1, Each: time.Second}
				kinds := job.Kinds{"bad": failing, "good": work}
				for i := range tt.workers {
					b.Start(fmt.Sprintf("vm_%d", i), kinds)
				}
				begun := time.Now()
				b.WaitFor("all good jobs done", time.Minute, func() bool { return work.Jobs() == good })
				served := time.Since(begun)
				b.WaitFor("all bad jobs poisoned", tt.within, func() bool { return b.MessagesLeft() == 0 })
				t.Logf("good jobs done after %s, bad ones poisoned after %s", served.Round(time.Second), time.Since(begun).Round(time.Second))
				if n := len(b.PoisonMessages()); n != tt.bad {
					t.Errorf("%d messages in the poison queue, want %d", n, tt.bad)
				}
			})
		})
	}
}

// TestSickForAWhile: when the fault of a machine is fixed, the circuit breaker closes
// and the worker does all its jobs.
func TestSickForAWhile(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		for i := range 200 {
			b.Put(fmt.Sprintf("job-%d", i), "work", "")
		}
		var well atomic.Bool
		work := &rig.Steps{N: 1, Each: time.Second}
		h := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			if !well.Load() {
				return nil, errors.New("no such device")
			}
			return work.Run(ctx, j)
		})
		c := &rig.Counter{}
		p := b.Start("vm_0", job.Kinds{"work": h}, rig.Observed(c))
		time.Sleep(5 * time.Minute)
		if notes := p.Loops.Check(time.Now()); !notes.Healthy() || len(notes.Notes) != 1 {
			t.Errorf("health = %v, notes %q, want healthy with one note", notes, notes.Notes)
		}
		if n := c.Of("broke work")["broke work"]; n < 2 {
			t.Errorf("the breaker opened %d times in 5 minutes, want more than once", n)
		}
		well.Store(true)
		b.WaitFor("all done", 5*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if n := len(b.PoisonMessages()); n > 0 {
			t.Errorf("%d jobs poisoned, want none", n)
		}
		if notes := p.Loops.Check(time.Now()).Notes; len(notes) > 0 {
			t.Errorf("notes = %q, want none any more", notes)
		}
		if n := len(p.Log.Find("circuit breaker closed")); n != 1 {
			t.Errorf("log lines about the closed breaker = %d, want 1", n)
		}
	})
}

// TestHalfSickMachine: on one machine of four, runs fail and succeed in turn. Its worker takes
// a quarter of the starts at first, and few once its circuit breaker has compared it with the
// others. No job is dead-lettered, and no breaker opens on a healthy machine.
func TestHalfSickMachine(t *testing.T) {
	proof.Only(t, "it simulates hours")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const jobs, slots = 3000, 2
		var sick, all, turn atomic.Int64
		started := func() { all.Add(1) }
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "work", "")
		}
		c := &rig.Counter{}
		concurrency := func(c *worker.Config) { c.Concurrency = slots }
		ill := b.Start("vm_sick", job.Kinds{"work": job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
			started()
			sick.Add(1)
			rig.SleepFor(ctx, 2*time.Second)
			if turn.Add(1)%2 == 0 {
				return nil, errors.New("input/output error")
			}
			return nil, context.Cause(ctx)
		})}, concurrency, rig.Observed(c))
		others := &rig.Counter{}
		for i := range 3 {
			b.Start(fmt.Sprintf("vm_well_%d", i), job.Kinds{"work": job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
				started()
				rig.SleepFor(ctx, 2*time.Second)
				return nil, context.Cause(ctx)
			})}, concurrency, rig.Observed(others))
		}
		begun := time.Now()
		b.WaitFor("the breaker opens", 3*time.Minute, func() bool { return c.Of("broke work")["broke work"] > 0 })
		after := time.Since(begun)
		sickBefore, allBefore := sick.Load(), all.Load()
		time.Sleep(10 * time.Minute)
		before := float64(sickBefore) / float64(allBefore)
		share := float64(sick.Load()-sickBefore) / float64(all.Load()-allBefore)
		t.Logf("the sick machine had %d of %d starts (%.0f%%) in the first %s, and %d of %d (%.1f%%) in the 10 min after that", sickBefore,
			allBefore, 100*before, after.Round(time.Second), sick.Load()-sickBefore, all.Load()-allBefore, 100*share)
		if before < 0.15 || share > 0.06 {
			t.Errorf("share of the starts on the sick machine = %.2f before and %.2f after, want about 0.25 and at most 0.06", before, share)
		}
		if n := others.Of("broke work")["broke work"]; n > 0 {
			t.Errorf("breakers on healthy machines opened %d times, want never", n)
		}
		lines := ill.Log.Find("circuit breaker open: leaving jobs of this kind to others")
		if len(lines) == 0 || lines[0]["reason"] != "far more jobs of this kind fail on this worker than on other machines" {
			t.Error("the log does not report why the breaker opened")
		}
		if n := len(b.PoisonMessages()); n > 0 {
			t.Errorf("%d jobs are poison, want none", n)
		}
	})
}
