package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestUnsavedStates: a state that cannot be recorded keeps no job from its end, and the record keeps the state before it.
func TestUnsavedStates(t *testing.T) {
	good := job.Progress{State: []byte("good"), Fraction: 0.25}
	bad := func(name string) job.Progress {
		p := job.Progress{Fraction: 0.5}
		switch name {
		case "too large":
			p.State = make([]byte, job.MaxState+1)
		case "without its outputs":
			p.State = []byte("relies on them")
		default:
			p.Stream = func() (io.ReadCloser, error) { return nil, errors.New("bad disk") }
		}
		return p
	}
	for _, name := range []string{"too large", "unreadable", "without its outputs"} {
		for _, end := range []string{"break", "drain"} {
			t.Run(name+", "+end, func(t *testing.T) {
				kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
					j.Report(good)
					if err := sleeps(ctx, 2*time.Minute+time.Second); err != nil { // the worker looks every 5 s
						return nil, err
					}
					if name == "without its outputs" {
						j.BeforeSave(func(context.Context) error { return errors.New("no such file") })
					}
					if end == "break" {
						j.Report(bad(name))
						return nil, job.Interrupted(errors.New("wait"))
					}
					<-ctx.Done()
					j.Report(bad(name))
					return nil, context.Cause(ctx)
				})
				onBench(t, kinds, func(t *testing.T, b *bench) {
					b.Put("a", "k", "")
					wait := b.begin(b.claim())
					time.Sleep(3*time.Minute + 2*time.Second)
					if active := len(b.Jobs()) > 0; active == (end == "break") {
						t.Errorf("the job is active: %t", active)
					}
					b.drainNow(10 * time.Second)
					wait()
					r := b.Record("a")
					if r.Status != checkpoint.Open || r.StateSize != 4 || r.FailuresTotal != 0 || b.MessagesLeft() != 1 {
						t.Errorf("record = %s %q, %d bytes of state, %d failures; want it open with the good state", r.Status, r.Reason, r.StateSize,
							r.FailuresTotal)
					}
					if b.counter.Of("left out")["left out"] != 1 || b.Counts().LeftOut != 1 {
						t.Errorf("states left out = %v, %+v, want one", b.counter.Of("left out"), b.Counts())
					}
				})
			})
		}
	}
}

// TestBreakWithoutAState: a break whose outputs cannot be sent has no state to leave out.
func TestBreakWithoutAState(t *testing.T) {
	asked := 0 // the handler, for its outputs
	kinds := handle(func(_ context.Context, j *job.Job) ([]byte, error) {
		j.BeforeSave(func(context.Context) error {
			asked++
			return errors.New("no such file")
		})
		return nil, job.Interrupted(errors.New("wait"))
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.putOpen("a", "k", checkpoint.Snapshot{State: []byte("before")})
		b.runOne()
		r, leftOut := b.Record("a"), b.counter.WithPrefix("left out")
		if r.Status != checkpoint.Open || r.Breaks != 1 || r.StateSize != 6 || leftOut != 0 || asked != 1 {
			t.Errorf("record = %s after %d breaks, %d bytes of state, %d states left out, the handler asked %d times; want it open after one, "+
				"6, none, once", r.Status, r.Breaks, r.StateSize, leftOut, asked)
		}
	})
}

// TestWritesTakeTurns: the first small writes of many jobs that started together take turns, and each gives its place to the next. A stop
// ends the wait for a place. Large states wait for none.
func TestWritesTakeTurns(t *testing.T) {
	const n, places = 100, 32
	for name, row := range map[string]struct {
		size   int // of the state, 0 for none
		due    time.Duration
		stops  bool
		atOnce int
	}{
		"touches": {0, 10 * time.Second, false, places}, "touches and a stop": {0, 10 * time.Second, true, places},
		"saves": {rig.SmallState, 5 * time.Second, false, places}, "large saves": {rig.SmallState + 1, 5 * time.Second, false, n},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				if row.size > 0 {
					j.Report(job.Progress{State: make([]byte, row.size)})
				}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}), func(t *testing.T, b *bench) {
				begun := time.Now()
				wait := b.beginMany(n)
				var mu sync.Mutex
				var writes []time.Duration // after they were due
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					if !on(b.Names.Records, storage.OpPutBlob)(c) {
						return storage.Fault{}
					}
					mu.Lock()
					defer mu.Unlock()
					writes = append(writes, time.Since(begun)-row.due)
					return storage.Fault{Before: 10 * time.Millisecond}
				})
				time.Sleep(row.due + 5*time.Millisecond)
				if !row.stops {
					time.Sleep(time.Second)
				}
				b.drainNow(10 * time.Second)
				wait()
				mu.Lock()
				defer mu.Unlock()
				slices.Sort(writes)
				// A place that is not left is free after 200 ms.
				want := []time.Duration{0}
				if !row.stops && row.atOnce < n {
					want = []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond}
				}
				if got := slices.Compact(slices.Clone(writes)); !slices.Equal(got, want) || writes[min(row.atOnce, len(writes))-1] != 0 ||
					len(writes) > row.atOnce && writes[row.atOnce] == 0 {
					t.Errorf("%d writes at %s, want %d at each of %s", len(writes), got, row.atOnce, want)
				}
				if c := b.Counts(); c != (delivery.Counts{Released: n}) || b.visible() != n {
					t.Errorf("counts = %+v, %d visible messages; want %d jobs released", c, b.visible(), n)
				}
			})
		})
	}
}

// TestStopDuringSaveAll: a stop ends the wait of the jobs that were asked to save and have no place yet. Their releases save.
func TestStopDuringSaveAll(t *testing.T) {
	const n = 2*drain.Parallel + 5
	onBench(t, job.Kinds{"k": &rig.SteadyReporter{}}, func(t *testing.T, b *bench) {
		wait := b.beginMany(n)
		time.Sleep(2 * time.Second)
		b.delay(10*time.Millisecond, on(b.Names.Records, storage.OpPutBlob))
		answer := b.SaveAll()
		time.Sleep(5 * time.Millisecond)
		b.drainNow(10 * time.Second)
		if jobs, unsaved := answer(); jobs != n || unsaved != n-drain.Parallel {
			t.Errorf("%d jobs, %d unsaved; want %d, and those without a place", jobs, unsaved, n)
		}
		wait()
		open, states := 0, 0
		for i := range n {
			r := b.Record(fmt.Sprint("job-", i))
			if r.Status == checkpoint.Open {
				open++
			}
			if r.HasState() {
				states++
			}
		}
		if open != n || states != n || b.visible() != n || b.Counts() != (delivery.Counts{Released: n}) {
			t.Errorf("%d records are open, %d with a state, %d visible messages, %+v; want %d of each", open, states, b.visible(), b.Counts(), n)
		}
	})
}

// TestReleaseThatIsRefused: a record that cannot be written at first is written later with its last state. A state that can never be
// recorded is left out, and the record without it is written as often as it takes.
func TestReleaseThatIsRefused(t *testing.T) {
	all := []string{storage.OpSetBlobMetadata, storage.OpPutBlob, storage.OpPutBlock, storage.OpPutBlockList}
	for name, row := range map[string]struct {
		size    int
		leftOut int
		refused []string // operations
	}{
		"the largest state":           {job.MaxState, 0, all},
		"a state that is too large":   {job.MaxState + 1, 1, all},
		"only a write with the state": {job.MaxState, 0, all[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				<-ctx.Done()
				j.Report(job.Progress{State: make([]byte, row.size), Fraction: 0.5})
				return nil, context.Cause(ctx)
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				wait := b.begin(b.claim())
				time.Sleep(time.Minute + 2*time.Second) // no round, which would find the state that is too large
				end := b.fail(http.StatusForbidden, "AuthorizationFailure", on(b.Names.Records, row.refused...))
				b.drainNow(30 * time.Second)
				time.Sleep(3 * time.Second)
				end()
				wait()
				r := b.Record("a")
				if r.Status != checkpoint.Open || r.Fraction != 0.5 || r.HasState() == (row.leftOut == 1) || b.visible() != 1 {
					t.Errorf("record = %s at %v, state %t, %d visible messages; want it open at 0.5, and one", r.Status, r.Fraction,
						r.HasState(), b.visible())
				}
				if got := b.counter.WithPrefix("left out"); got != row.leftOut {
					t.Errorf("%d states left out, want %d", got, row.leftOut)
				}
			})
		})
	}
}

// TestSameStreamAgain: a streamed state with the content of the recorded one is not left out.
func TestSameStreamAgain(t *testing.T) {
	kinds := handle(func(_ context.Context, j *job.Job) ([]byte, error) {
		j.Report(rig.LargeProgress(1))
		return nil, job.Interrupted(errors.New("wait"))
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.putOpen("a", "k", checkpoint.Snapshot{Stream: rig.LargeProgress(1).Stream})
		before := b.Record("a")
		b.runOne()
		r, unsaved := b.Record("a"), b.counter.WithPrefix("left out")
		if r.Status != checkpoint.Open || r.Generation != 2 || r.StateHash != before.StateHash || unsaved != 0 {
			t.Errorf("record = %s of generation %d, the same state %t, %d left out; want it open, 2, with it, none", r.Status, r.Generation,
				r.StateHash == before.StateHash, unsaved)
		}
		if n := b.counter.Of("saved saved")["saved saved"]; n != 1 {
			t.Errorf("%d saves reported, want one", n)
		}
	})
}

// TestOutputsThatAreNotRecorded: if the list of new outputs was stored and the write of the record failed, the record is written again
// within seconds.
func TestOutputsThatAreNotRecorded(t *testing.T) {
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		if err := j.SendOutput(ctx, "x", strings.NewReader("x")); err != nil {
			return nil, err
		}
		return nil, sleeps(ctx, 5*time.Minute)
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		end := b.fail(http.StatusForbidden, "AuthorizationFailure", on(b.Names.Records, storage.OpPutBlob, storage.OpSetBlobMetadata))
		wait := b.begin(b.claim())
		b.WaitFor("a write that fails", time.Minute, func() bool { return b.lines("checkpoint not saved; the one before stands") == 1 })
		end()
		time.Sleep(10 * time.Second)
		if r := b.Record("a"); r.Status != checkpoint.Running || r.Outputs.Files != 1 {
			t.Errorf("record = %q with %d outputs, want it running, with one", r.Status, r.Outputs.Files)
		}
		wait()
	})
}
