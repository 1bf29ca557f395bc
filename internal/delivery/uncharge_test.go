package delivery_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestUnchargedSave: if a job's last worker died, its record says before a long save that a new state was reported, so that an exit
// during the save is not charged to the job. A small state, and a job without unclean exits, need no such write.
func TestUnchargedSave(t *testing.T) {
	stream := func(text string) job.Progress {
		return job.Progress{Stream: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	}
	for name, row := range map[string]struct {
		exits    int
		p        job.Progress
		output   bool
		uncharge bool
	}{
		"a large state":               {1, job.Progress{State: make([]byte, rig.SmallState+1)}, false, true},
		"a stream":                    {1, stream("new"), false, true},
		"after several exits":         {2, job.Progress{State: make([]byte, rig.SmallState+1)}, false, true},
		"a small state":               {1, job.Progress{State: make([]byte, rig.SmallState)}, false, false},
		"a small state and an output": {1, job.Progress{State: make([]byte, rig.SmallState)}, true, true},
		"without an unclean exit":     {0, job.Progress{State: make([]byte, rig.SmallState+1)}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				if err := sleeps(ctx, time.Minute); err != nil {
					return nil, err
				}
				j.Report(row.p)
				if row.output {
					if err := j.SendOutput(ctx, "x", strings.NewReader("x")); err != nil {
						return nil, err
					}
				}
				return nil, sleeps(ctx, 4*time.Minute)
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				time.Sleep(2 * rig.SteadyFor)
				if row.exits > 0 {
					b.putCrashed("a", row.exits, true)
				} else {
					b.Put("a", "k", "")
				}
				wait := b.begin(b.claim())
				time.Sleep(50 * time.Second)
				if !b.Record("a").Charge {
					t.Fatal("an exit before a state was reported is not charged")
				}
				// No state can be sent; other writes of the record can.
				end := b.down(func(c storage.Call) bool {
					return on(b.Names.Records, storage.OpPutBlob, storage.OpPutBlock)(c) && c.Size > 0
				})
				time.Sleep(3 * time.Minute)
				if r := b.Record("a"); r.HasState() || r.Charge == row.uncharge || r.Status != checkpoint.Running {
					t.Errorf("record during the save = %s, state %t, charges an exit: %t; want it running without, %t", r.Status, r.HasState(), r.Charge,
						!row.uncharge)
				}
				end()
				if wait(); b.Record("a").Status != checkpoint.Done {
					t.Errorf("record = %s, want done", b.Record("a").Status)
				}
			})
		})
	}
}

// TestUnchargeThatFails: while the record cannot say that a new state was reported, a long save does not begin.
func TestUnchargeThatFails(t *testing.T) {
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		if err := sleeps(ctx, time.Minute); err != nil {
			return nil, err
		}
		j.Report(job.Progress{State: make([]byte, rig.SmallState+1)})
		return nil, sleeps(ctx, 4*time.Minute)
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		time.Sleep(2 * rig.SteadyFor)
		b.putCrashed("a", 1, true)
		wait := b.begin(b.claim())
		time.Sleep(50 * time.Second)
		end := b.fail(http.StatusForbidden, "AuthorizationFailure", on(b.Names.Records, storage.OpSetBlobMetadata))
		time.Sleep(3 * time.Minute)
		if r := b.Record("a"); r.HasState() || !r.Charge || b.lines("checkpoint not saved; the one before stands") == 0 {
			t.Errorf("record with a state: %t, charges an exit: %t; want false, true, and a line about that", r.HasState(), r.Charge)
		}
		end()
		time.Sleep(12 * time.Second)
		if r := b.Record("a"); !r.HasState() || r.Charge {
			t.Errorf("record with a state: %t, charges an exit: %t; want true, false", r.HasState(), r.Charge)
		}
		wait()
	})
}

// TestSaveThatIsNotCharged: if an exit is not charged to the job at the moment, a long save needs no write before it.
func TestSaveThatIsNotCharged(t *testing.T) {
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		j.Report(job.Progress{State: make([]byte, rig.SmallState+1)})
		return nil, sleeps(ctx, 8*time.Second)
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.putCrashed("a", 1, false)
		before := b.counted(storage.OpSetBlobMetadata)
		wait := b.begin(b.claim())
		time.Sleep(6 * time.Second) // the worker looks every 5 s
		r, n := b.Record("a"), b.counted(storage.OpSetBlobMetadata)-before
		if !r.HasState() || r.Charge || n != 1 {
			t.Errorf("record with a state: %t, charges an exit: %t, after %d writes of metadata; want true, false, and one to acquire it",
				r.HasState(), r.Charge, n)
		}
		wait()
	})
}

// TestChargeOfATouch: an exit after the first write of a run is charged to the job if its worker was steady at the claim, or the handler
// has run for ten seconds by then.
func TestChargeOfATouch(t *testing.T) {
	for name, row := range map[string]struct {
		steady bool
		after  time.Duration // the first write
		charge bool
	}{
		"a steady worker": {true, 5 * time.Second, true}, "a new worker": {false, 5 * time.Second, false},
		"a new worker, later": {false, 10 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, _ *job.Job) ([]byte, error) { return nil, sleeps(ctx, 30*time.Second) })
			onBench(t, kinds, func(t *testing.T, b *bench) {
				if row.steady {
					time.Sleep(2 * rig.SteadyFor)
				}
				b.putCrashed("a", 1, row.steady)
				wait := b.begin(b.claim())
				time.Sleep(20 * time.Second)
				if r := b.Record("a"); r.Status != checkpoint.Running || r.RunTime != row.after || r.Charge != row.charge {
					t.Errorf("record = %q after a run of %s, charges an exit: %t; want it running, %s, %t", r.Status, r.RunTime, r.Charge, row.after,
						row.charge)
				}
				wait()
			}, func(b *bench) { b.config.Policy.FirstAfter = row.after })
		})
	}
}
