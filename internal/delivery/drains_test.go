package delivery_test

import (
	"context"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestDrainOfManyJobs: in a drain of more jobs than may be released at once, a bounded number is released at once, and
// each gives its place to the next.
func TestDrainOfManyJobs(t *testing.T) {
	const n = 2*drain.Parallel + 5
	onBench(t, job.Kinds{"k": &rig.SteadyReporter{}}, func(t *testing.T, b *bench) {
		wait := b.beginMany(n)
		time.Sleep(2 * time.Second)
		if active := len(b.Jobs()); active != n || b.Counts().Active != n {
			t.Errorf("%d jobs are active, want %d", active, n)
		}
		var mu sync.Mutex
		begun, first := time.Now(), 0 // calls at the moment of the stop
		b.Server.OnCall(func(storage.Call) storage.Fault {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(begun) == 0 {
				first++
			}
			return storage.Fault{Before: 10 * time.Millisecond}
		})
		b.drainNow(10 * time.Second)
		wait()
		// A place that is not left is free after 200 ms.
		if took := time.Since(begun); b.Counts().Released != n || b.visible() != n || took > 100*time.Millisecond {
			t.Errorf("%d jobs released, %d visible after %s; want %d within 0.1s", b.Counts().Released, b.visible(), took, n)
		}
		mu.Lock()
		defer mu.Unlock()
		if first != drain.Parallel {
			t.Errorf("%d calls at once, want %d", first, drain.Parallel)
		}
	})
}

// TestTimeoutInADrain: a call that has no answer before a stop, and runs out of its own time during
// the drain, is made again at once; without a drain after half a second.
func TestTimeoutInADrain(t *testing.T) {
	const callTimeout = 20 * time.Second
	for drains, want := range map[bool]time.Duration{true: 100 * time.Millisecond, false: 600 * time.Millisecond} {
		onBench(t, job.Kinds{}, func(t *testing.T, b *bench) {
			b.Put("a", "unknown", "")
			calls := 0
			b.Server.OnCall(func(c storage.Call) storage.Fault {
				if c.Operation != storage.OpUpdateMessage {
					return storage.Fault{}
				}
				if calls++; calls == 1 {
					return storage.Fault{Before: time.Hour}
				}
				return storage.Fault{}
			})
			wait := b.begin(b.claim())
			time.Sleep(callTimeout - 100*time.Millisecond)
			begun := time.Now()
			if drains {
				b.drainNow(10 * time.Second)
			}
			if result, took := wait(), time.Since(begun); result != delivery.NotRun || took != want || calls != 2 {
				t.Errorf("drains %t: result = %v after %s and %d calls, want it not run after %s and two", drains, result, took, calls, want)
			}
		})
	}
}

// TestNoPlaceInADrain: a job with a large state that gets no place among the last writes before the end of the drain is left like
// the jobs that had one.
func TestNoPlaceInADrain(t *testing.T) {
	const n = drain.Parallel + 3
	state := make([]byte, rig.SmallState+1) // a larger write keeps its place
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		<-ctx.Done()
		j.Report(job.Progress{State: state})
		return nil, context.Cause(ctx)
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		wait := b.beginMany(n)
		time.Sleep(2 * time.Second)
		b.down(func(storage.Call) bool { return true })
		begun := time.Now()
		b.drainNow(10 * time.Second)
		wait()
		if took := time.Since(begun); b.Counts() != (delivery.Counts{Late: n}) || b.counter.Of("ended left")["ended left"] != n ||
			took < 9*time.Second || took > 11*time.Second {
			t.Errorf("counts = %+v after %s, want %d jobs left at the end of the drain", b.Counts(), took, n)
		}
	})
}

// TestOutputsComeLastInADrain: if the places for last writes are taken, a job whose handler has outputs to send comes after a job with a
// state, since the size of outputs is not known.
func TestOutputsComeLastInADrain(t *testing.T) {
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		<-ctx.Done()
		switch j.ID {
		case "outputs":
			j.BeforeSave(func(context.Context) error { return nil })
			time.Sleep(time.Microsecond)
		case "state":
			time.Sleep(2 * time.Microsecond)
		}
		j.Report(job.Progress{State: []byte(j.ID)})
		return nil, context.Cause(ctx)
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		wait := b.beginMany(drain.Parallel)
		var waits []func() delivery.Result
		for _, id := range []string{"outputs", "state"} {
			b.Put(id, "k", "")
			waits = append(waits, b.begin(b.claim()))
		}
		time.Sleep(2 * time.Second)
		var mu sync.Mutex
		// Where answers are slow, there are more places.
		begun, written := time.Now(), map[string]time.Duration{} // by job
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			mu.Lock()
			defer mu.Unlock()
			id := path.Base(c.Blob)
			written[id] = time.Since(begun)
			if id == "job-0" {
				return storage.Fault{Before: 10 * time.Microsecond}
			}
			return storage.Fault{Before: 20 * time.Microsecond}
		})
		b.drainNow(10 * time.Second)
		wait()
		for _, wait := range waits {
			wait()
		}
		mu.Lock()
		defer mu.Unlock()
		state, outputs := written["state"], written["outputs"]
		if state < 10*time.Microsecond || outputs <= state || b.Counts().Released != drain.Parallel+2 {
			t.Errorf("the state was written after %s, the job with outputs after %s, %d released; want the state first, once a place is free", state,
				outputs, b.Counts().Released)
		}
	})
}

// TestDepartureOfTheVM: once claiming has ended before a departure of the VM, a job that cannot end in time is stopped, and
// others run on.
func TestDepartureOfTheVM(t *testing.T) {
	for name, row := range map[string]struct {
		from     int           // of 60 steps
		gone     time.Duration // from the start of the job
		closed   bool
		released bool
	}{
		"it ends in time":          {0, 20 * time.Minute, true, false},
		"it does not":              {0, 6 * time.Minute, true, true},
		"claiming continues":       {0, 6 * time.Minute, false, false},
		"no departure is known":    {0, 0, false, false},
		"resumed, it ends in time": {30, 6 * time.Minute, true, false},
		"resumed, it does not":     {30, 4*time.Minute + preempt.DrainMargin, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) { // ten minutes for all steps
				for n := row.from; n < 60; n++ {
					j.Report(job.Progress{Fraction: float64(n) / 60})
					if err := sleeps(ctx, 10*time.Second); err != nil {
						return nil, err
					}
				}
				return nil, nil
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				begun := float64(row.from) / 60
				b.putOpen("a", "k", checkpoint.Snapshot{State: []byte("s"), Fraction: begun})
				wait := b.begin(b.claim())
				time.Sleep(3*time.Minute + 2*time.Second) // the worker looks every 5 s
				if r := b.Running(); len(r) != 1 || r[0].From != begun || r[0].Fraction <= begun {
					t.Errorf("running = %+v, want one job that began at %v", r, begun)
				}
				if row.gone > 0 {
					budget := row.gone - 3*time.Minute - 2*time.Second
					v := preempt.Verdict{Action: preempt.DrainBy, Budget: budget, Event: preempt.Event{ID: "e", Type: "Reboot"}}
					b.config.Departure.Set(preempt.Decision{Verdict: v, Verdicts: []preempt.Verdict{v}}, time.Now())
				}
				if row.closed {
					b.config.Departure.CloseIfDue(time.Now(), time.Hour)
				}
				b.RecheckAll()
				time.Sleep(time.Second)
				if released := b.Counts().Released == 1; released != row.released || (len(b.Running()) == 0) != released {
					t.Errorf("released: %t, running %v; want released: %t", released, b.Running(), row.released)
				}
				b.drainNow(10 * time.Second)
				wait()
			})
		})
	}
}
