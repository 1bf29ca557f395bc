package delivery_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestSlowSaves: the next save comes an interval after the end of the one before, so that a long save is followed by work.
// A worker warns once if a hand-over takes longer than a notice leaves for it: the handler takes the state, and the worker saves it.
func TestSlowSaves(t *testing.T) {
	for name, row := range map[string]struct {
		takes    time.Duration
		taking   time.Duration // in the handler
		warnings int
	}{
		"fast": {time.Second, 0, 0}, "slow": {6 * time.Second, 0, 1},
		"slow to take": {time.Second, 4*time.Second + 1, 1}, "just in time": {time.Second, 4 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var interval time.Duration
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				interval = job.ControlOf(j).SaveInterval(row.taking)
				for n := byte(0); ; n++ {
					j.Report(job.Progress{State: []byte{n}})
					if err := sleeps(ctx, time.Second); err != nil {
						return nil, err
					}
				}
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				var mu sync.Mutex
				var begun []time.Time
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					if !on(b.Names.Records, storage.OpPutBlob)(c) {
						return storage.Fault{}
					}
					mu.Lock()
					defer mu.Unlock()
					begun = append(begun, time.Now())
					return storage.Fault{Before: row.takes}
				})
				b.Put("a", "k", "")
				wait := b.begin(b.claim())
				time.Sleep(8 * time.Second)
				if r := b.Running(); len(r) != 1 || r[0].HandOver != 0 {
					t.Errorf("running = %+v, want a job whose hand-over is not known before two saves", r)
				}
				time.Sleep(time.Hour)
				want := checkpoint.DefaultPolicy().IntervalFor(checkpoint.Situation{Cost: row.taking})
				if r := b.Running(); len(r) != 1 || r[0].HandOver != row.taking+row.takes || interval != want {
					t.Errorf("running = %+v, interval for the handler %s; want a hand-over of %s, and %s", r, interval, row.taking+row.takes, want)
				}
				b.Server.OnCall(nil)
				b.drainNow(10 * time.Second)
				wait()
				lines := b.log.Find("checkpoint saved")
				if len(lines) < 4 || len(lines) > len(begun) {
					t.Fatalf("%d saves with %d calls, want at least 4, each with one call", len(lines), len(begun))
				}
				for i, at := range begun[1:len(lines)] {
					interval := time.Duration(lines[i]["interval"].(float64))
					if after := at.Sub(begun[i]) - row.takes; after < interval-time.Second || after > interval+10*time.Second {
						t.Errorf("save %d began %s after the end of the one before, want %s", i+1, after, interval)
					}
				}
				warnings := b.lines("a checkpoint takes longer to save than an eviction leaves for it: the one before would stand")
				if warnings != row.warnings {
					t.Errorf("%d warnings, want %d", warnings, row.warnings)
				}
			})
		})
	}
}

// unwarned are the losses of VMs that are evicted without notice.
type unwarned struct{ noLosses }

func (unwarned) Unwarned(time.Time) bool { return true }

// TestSavesBeforeAnEviction: while an eviction is likelier than usual, or would come without notice, states are saved as often as
// the policy allows.
func TestSavesBeforeAnEviction(t *testing.T) {
	usual := checkpoint.DefaultPolicy().IntervalFor(checkpoint.Situation{Cost: time.Second})
	shortest := checkpoint.Shortest
	for name, row := range map[string]struct {
		change func(b *bench)
		want   time.Duration
	}{
		"as usual":       {func(*bench) {}, usual},
		"without notice": {func(b *bench) { b.config.Losses = unwarned{} }, shortest},
		"an advisory": {func(b *bench) {
			b.config.Departure.Set(preempt.Decision{Verdicts: []preempt.Verdict{{Advisory: true}}}, time.Now())
		}, shortest},
	} {
		t.Run(name, func(t *testing.T) {
			var interval time.Duration
			work := &rig.SteadyReporter{}
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				interval = job.ControlOf(j).SaveInterval(time.Second)
				return work.Run(ctx, j)
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.delay(time.Second, on(b.Names.Records, storage.OpPutBlob))
				b.Put("a", "k", "")
				wait := b.begin(b.claim())
				time.Sleep(time.Hour)
				b.drainNow(10 * time.Second)
				wait()
				lines := b.log.Find("checkpoint saved")
				if got := time.Duration(lines[len(lines)-1]["interval"].(float64)); got != row.want || interval != row.want {
					t.Errorf("interval = %s, for the handler %s; want %s", got, interval, row.want)
				}
				if most := int(time.Hour/(row.want+time.Second)) + 3; len(lines) > most || len(lines) < most/2 {
					t.Errorf("%d saves in an hour, want about %d", len(lines), most)
				}
			}, row.change)
		})
	}
}

// TestSaveAfterAFailure: a save that failed is tried again within seconds, and the save after the next that took effect comes an
// interval later again.
func TestSaveAfterAFailure(t *testing.T) {
	const before, failures = 2, 3
	onBench(t, job.Kinds{"k": &rig.SteadyReporter{}}, func(t *testing.T, b *bench) {
		var mu sync.Mutex
		var begun []time.Time
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if !on(b.Names.Records, storage.OpPutBlob)(c) {
				return storage.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			begun = append(begun, time.Now())
			if n := len(begun); n > before && n <= before+failures {
				return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationFailure", Message: "no"}}
			}
			return storage.Fault{Before: time.Second}
		})
		b.Put("a", "k", "")
		wait := b.begin(b.claim())
		saved := func(n int) func() bool {
			return func() bool { return b.counter.Of("saved saved")["saved saved"] == n }
		}
		b.WaitFor("the failures", time.Hour, func() bool { return b.counter.Of("saved failed")["saved failed"] == failures })
		b.WaitFor("the save after them", time.Minute, saved(before+1))
		if next := b.Record("a").NextWrite; next < time.Minute {
			t.Errorf("next write after the failures in %s, want an interval as before", next)
		}
		time.Sleep(time.Hour)
		b.Server.OnCall(nil)
		b.drainNow(10 * time.Second)
		wait()
		failed := b.lines("checkpoint not saved; the one before stands")
		if len(begun) < before+failures+3 || failed != failures {
			t.Fatalf("%d saves, %d failed; want some after the failed ones, and %d", len(begun), failed, failures)
		}
		for i, at := range begun[1:] {
			gap, again := at.Sub(begun[i]), i >= before && i < before+failures
			if again && (gap < 5*time.Second || gap > 11*time.Second) || !again && i > 0 && gap < time.Minute {
				t.Errorf("save %d began %s after the one before, want 5 to 10 s: %t", i+2, gap, again)
			}
		}
	})
}
