package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestDrainOfManyJobs: in a drain of more jobs than may be released at once, each gives its place to the next.
func TestDrainOfManyJobs(t *testing.T) {
	const n = 2*drain.LeastParallel + 5
	onBench(t, job.Kinds{"k": &rig.SteadyReporter{}}, func(t *testing.T, b *bench) {
		var waits []func() delivery.Result
		for i := range n {
			b.Put(fmt.Sprint("job-", i), "k", "")
			waits = append(waits, b.begin(b.claim()))
		}
		time.Sleep(2 * time.Second)
		if active := len(b.Jobs()); active != n || b.Counts().Active != n {
			t.Errorf("%d jobs are active, want %d", active, n)
		}
		b.Server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: 10 * time.Millisecond} })
		begun := time.Now()
		b.drainNow(10 * time.Second)
		for _, wait := range waits {
			wait()
		}
		if took := time.Since(begun); b.Counts().Released != n || b.visible() != n || took > 300*time.Millisecond {
			t.Errorf("%d jobs released, %d visible after %s; want %d within 0.3s", b.Counts().Released, b.visible(), took, n)
		}
	})
}

// TestDepartureOfTheVM: once claiming has ended before a departure of the VM, a job that cannot end in time is stopped, and
// others run on.
func TestDepartureOfTheVM(t *testing.T) {
	for name, row := range map[string]struct {
		gone     time.Duration // from the start of the job
		closed   bool
		released bool
	}{
		"it ends in time":       {20 * time.Minute, true, false},
		"it does not":           {6 * time.Minute, true, true},
		"claiming goes on":      {6 * time.Minute, false, false},
		"no departure is known": {0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) { // for ten minutes
				for n := range 60 {
					j.Report(job.Progress{Fraction: float64(n) / 60})
					if err := sleeps(ctx, 10*time.Second); err != nil {
						return nil, err
					}
				}
				return nil, nil
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				wait := b.begin(b.claim())
				time.Sleep(3 * time.Minute)
				if row.gone > 0 {
					v := preempt.Verdict{Action: preempt.DrainBy, Budget: row.gone - 3*time.Minute, Event: preempt.Event{ID: "e", Type: "Reboot"}}
					b.config.Departure.Set(preempt.Decision{Verdict: v, Verdicts: []preempt.Verdict{v}}, time.Now())
				}
				if row.closed {
					b.config.Departure.CloseIfDue(time.Now(), time.Hour)
				}
				b.RecheckAll()
				time.Sleep(10 * time.Second)
				if released := b.Counts().Released == 1; released != row.released || (len(b.Running()) == 0) != released {
					t.Errorf("released: %t, running %v; want released: %t", released, b.Running(), row.released)
				}
				b.drainNow(10 * time.Second)
				wait()
			})
		})
	}
}
