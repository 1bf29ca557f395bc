package delivery_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// untilStopped is a handler that reports a state, waits until it is stopped, and keeps the reason.
type untilStopped struct{ stop *job.Stop }

func (u *untilStopped) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	j.Report(job.Progress{State: []byte("1")})
	<-ctx.Done()
	u.stop = job.StopOf(ctx)
	return nil, context.Cause(ctx)
}

// announce tells the Runner that jobs may have been cancelled.
func (b *bench) announce(ids ...string) {
	d := &control.Document{}
	d.AddCancels(ids, time.Now())
	b.Follow(d)
}

// TestCancelCheck: a job reads its record once for each announcement, waits before it repeats a read
// that failed, and is stopped once the record is cancelled.
func TestCancelCheck(t *testing.T) {
	work := &untilStopped{}
	onBench(t, job.Kinds{"waits": work, "echo": rig.Echo}, func(t *testing.T, b *bench) {
		const notRead = "cannot read whether the job was cancelled; trying again"
		b.Put("a", "waits", "")
		wait := b.begin(b.claim())
		time.Sleep(30 * time.Second)
		end := b.down(on(b.Names.Records, storage.OpGetBlobProperties))
		b.announce("a")
		b.WaitFor("a read that fails", time.Minute, func() bool { return b.lines(notRead) == 1 })
		for range 3 {
			b.RecheckAll()
			time.Sleep(rig.RecheckEvery / 4)
		}
		if n := b.lines(notRead); n != 1 {
			t.Errorf("the record was read %d times within %s, want once", n, rig.RecheckEvery)
		}
		end()
		time.Sleep(2 * rig.RecheckEvery)
		read := b.counted(storage.OpGetBlobProperties)
		for range 5 {
			b.RecheckAll()
			time.Sleep(time.Second)
		}
		if n := b.counted(storage.OpGetBlobProperties) - read; n != 0 || work.stop != nil {
			t.Errorf("%d more reads of a record that is not cancelled, stop %v; want none", n, work.stop)
		}
		if _, err := b.Records.Cancel(t.Context(), "a", "me", "not needed", false); err != nil {
			t.Fatal(err)
		}
		b.announce("a")
		announced := time.Now()
		got := wait()
		if took := time.Since(announced); took != 0 {
			t.Errorf("ended %s after the announcement, want at once", took)
		}
		if got != delivery.Ran || work.stop == nil || work.stop.Reason != job.Cancelled || b.MessagesLeft() != 0 {
			t.Errorf("result %d, stop %v, %d messages left; want it cancelled, and no message", got, work.stop, b.MessagesLeft())
		}
		b.Follow(&control.Document{}) // the cancels are old
		writes := b.counted(storage.OpPutBlob)
		b.Put("b", "echo", "")
		b.runOne()
		if n := b.counted(storage.OpPutBlob) - writes; n != 1 {
			t.Errorf("%d writes for a job of a generated id, want its end alone", n)
		}
		if b.Record("b").Ledger.Overhead > time.Second {
			t.Errorf("overhead of the next job = %s, want none for the time of a job whose end was not written", b.Record("b").Ledger.Overhead)
		}
	})
}

// TestFollowUpAfterACancel: a handler that has not been stopped yet puts no follow-up job once its
// own job is cancelled, although the worker could not read that.
func TestFollowUpAfterACancel(t *testing.T) {
	asked := make(chan struct{})
	var failed error
	work := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		<-asked
		_, failed = j.Put(ctx, job.FollowUp{Name: "x", Kind: "puts"})
		return nil, failed
	})
	onBench(t, job.Kinds{"puts": work}, func(t *testing.T, b *bench) {
		asked = make(chan struct{}) // of this bubble
		b.Put("a", "puts", "")
		wait := b.begin(b.claim())
		time.Sleep(30 * time.Second)
		if _, err := b.Records.Cancel(t.Context(), "a", "me", "not needed", false); err != nil {
			t.Fatal(err)
		}
		end := b.down(on(b.Names.Records, storage.OpGetBlobProperties))
		b.announce("a")
		b.WaitFor("a read that fails", time.Minute, func() bool {
			return b.lines("cannot read whether the job was cancelled; trying again") == 1
		})
		end()
		close(asked)
		if wait(); failed == nil || b.MessagesLeft() != 0 {
			t.Errorf("put of the follow-up job = %v, %d messages; want it refused, and none", failed, b.MessagesLeft())
		}
	})
}

// TestFollowUpAfterAStop: a handler that was stopped may put a follow-up job only as long as its own job is this worker's.
func TestFollowUpAfterAStop(t *testing.T) {
	for name, row := range map[string]struct {
		stop func(t *testing.T, b *bench, lease *queue.Lease)
		puts bool
	}{
		"drained": {func(_ *testing.T, b *bench, _ *queue.Lease) { b.drainNow(10 * time.Second) }, true},
		"lost":    {func(_ *testing.T, b *bench, lease *queue.Lease) { b.take(lease) }, false},
		"fenced":  {func(_ *testing.T, b *bench, _ *queue.Lease) { b.loseWorker("a") }, false},
		"cancelled": {func(t *testing.T, b *bench, _ *queue.Lease) {
			if _, err := b.Records.Cancel(t.Context(), "a", "me", "not needed", false); err != nil {
				t.Fatal(err)
			}
			b.announce("a")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var failed error
			work := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
				for n := byte(0); rig.SleepFor(ctx, time.Second); n++ {
					j.Report(job.Progress{State: []byte{n}})
				}
				_, failed = j.Put(context.WithoutCancel(ctx), job.FollowUp{Name: "x", Kind: "child"})
				return nil, context.Cause(ctx)
			})
			onBench(t, job.Kinds{"puts": work}, func(t *testing.T, b *bench) {
				b.Put("a", "puts", "")
				lease := b.claim()
				wait := b.begin(lease)
				b.WaitFor("a state", time.Minute, func() bool { return b.Record("a").HasState() })
				row.stop(t, b, lease)
				wait()
				children := 0
				for _, m := range b.Server.Messages(b.Names.Queue) {
					if decoded(t, m.Text).Kind == "child" {
						children++
					}
				}
				if names, _ := b.Record("a").FollowUps.IDs(); (failed == nil) != row.puts || (children == 1) != row.puts ||
					(len(names) == 1) != row.puts {
					t.Errorf("put = %v, %d follow-up jobs, %v in the record; want one: %t", failed, children, names, row.puts)
				}
			})
		})
	}
}

// TestTakenOver: a job whose record another worker took stops at its next write, and does what the
// record asks for: it leaves the message to its owner, or removes it if the job is over.
func TestTakenOver(t *testing.T) {
	for name, row := range map[string]struct {
		then    func(ctx context.Context, c *checkpoint.Claim) error
		outcome string
		left    int
	}{
		"runs there":     {func(context.Context, *checkpoint.Claim) error { return nil }, "ended dropped", 1},
		"was done there": {func(ctx context.Context, c *checkpoint.Claim) error { return c.Commit(ctx, []byte("theirs")) }, "ended finished", 0},
		"was given up there": {func(ctx context.Context, c *checkpoint.Claim) error {
			return c.Poison(ctx, checkpoint.Snapshot{}, "their reason")
		}, "ended finished", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var stop *job.Stop
			work := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
				for n := byte(0); ; n++ {
					j.Report(job.Progress{State: []byte{n}})
					if !rig.SleepFor(ctx, time.Second) {
						stop = job.StopOf(ctx)
						return []byte("ours"), nil
					}
				}
			})
			onBench(t, job.Kinds{"reports": work}, func(t *testing.T, b *bench) {
				b.Put("a", "reports", "")
				lease := b.claim()
				wait := b.begin(lease)
				b.WaitFor("a state", time.Minute, func() bool { return b.Record("a").HasState() })
				found := b.Record("a")
				theirs, err := b.Records.Acquire(t.Context(), checkpoint.Delivery{
					ID: "a", Kind: "reports", PayloadHash: found.PayloadHash, MessageID: lease.ID,
				}, found, "vm_1-boot-1")
				if err == nil {
					err = row.then(t.Context(), theirs)
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := wait(); got != delivery.Ran || stop == nil || stop.Reason != job.Fenced {
					t.Errorf("result %d, stop %v; want a stop because another worker has the job", got, stop)
				}
				if got := b.counter.Of(row.outcome)[row.outcome]; got != 1 || b.MessagesLeft() != row.left {
					t.Errorf("%q %d times, %d messages left; want once, and %d", row.outcome, got, b.MessagesLeft(), row.left)
				}
				if n := b.counter.Of("saved fenced")["saved fenced"]; n != 1 {
					t.Errorf("%d saves are reported as fenced, want one", n)
				}
				if lost := b.counter.Times["reports, redone"]; lost < time.Second || lost > time.Since(b.config.Started) ||
					len(b.counter.Times) != 1 {
					t.Errorf("times of the handler = %v, want all in vain", b.counter.Times)
				}
				if row.left == 1 {
					b.WaitFor("the message", time.Minute, func() bool { return b.visible() == 1 })
					if b.Adopt(b.claim()) {
						t.Error("the message that was left counts as one of an active delivery")
					}
				}
				if r := b.Record("a"); r.Owner != "vm_1-boot-1" || r.Status == checkpoint.Open {
					t.Errorf("record = %s of %s, want it as its owner left it", r.Status, r.Owner)
				}
				if name == "was given up there" && (len(b.PoisonMessages()) != 1 || b.PoisonMessages()[0].Reason != "their reason") {
					t.Errorf("poison messages = %+v, want one with the reason in the record", b.PoisonMessages())
				}
			})
		})
	}
}

// TestTakenOverAtATouch: a job that reports nothing, and whose record another worker took, stops at its next touch.
func TestTakenOverAtATouch(t *testing.T) {
	var stop *job.Stop
	kinds := handle(func(ctx context.Context, _ *job.Job) ([]byte, error) {
		err := sleeps(ctx, time.Hour)
		stop = job.StopOf(ctx)
		return nil, err
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		wait := b.begin(b.claim())
		time.Sleep(15 * time.Second)
		b.loseWorker("a")
		taken := time.Now()
		wait()
		if took := time.Since(taken); stop == nil || stop.Reason != job.Fenced || took > checkpoint.DefaultPolicy().TouchEvery ||
			b.counter.Of("ended dropped")["ended dropped"] != 1 || b.counter.WithPrefix("saved") != 0 {
			t.Errorf("stopped after %s because of %v, want at the next touch, because another worker has the job", took, stop)
		}
	})
}

// TestAcquireIsRepeated: an acquiring write whose outcome is unknown is settled before the handler
// starts, and counts once.
func TestAcquireIsRepeated(t *testing.T) {
	var owned checkpoint.Record
	var read func() checkpoint.Record
	work := job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
		owned = read()
		return []byte("done"), nil
	})
	onBench(t, job.Kinds{"reads": work}, func(t *testing.T, b *bench) {
		read = func() checkpoint.Record { return b.Record("a") }
		b.putOpen("a", "reads", checkpoint.Snapshot{State: []byte("s")})
		end := b.down(on(b.Names.Records, storage.OpSetBlobMetadata))
		wait := b.begin(b.claim())
		b.WaitFor("a repeat", time.Minute, func() bool { return b.lines("storage is unavailable; trying again") == 1 })
		end()
		wait()
		if owned.Status != checkpoint.Running || owned.Generation != 2 || owned.UncleanExits() != 0 {
			t.Errorf("the handler ran with the record %s of generation %d, want it running, of generation 2", owned.Status, owned.Generation)
		}
		if r := b.Record("a"); r.Status != checkpoint.Done || r.Generation != 2 {
			t.Errorf("record = %s of generation %d, want it done, of generation 2", r.Status, r.Generation)
		}
	})
}

// TestAcquiredElsewhere: a job whose record another worker acquires between the read and the acquiring write is not started, and its
// message ends as the new record asks.
func TestAcquiredElsewhere(t *testing.T) {
	for name, row := range map[string]struct {
		message string // of the other worker; empty for the same one
		commits bool
		outcome string
		left    int
	}{
		"another message has it": {"another", false, "ended put_back", 1},
		"a later delivery":       {"", false, "ended dropped", 1},
		"done there":             {"", true, "ended finished", 0},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"echo": rig.Echo}, func(t *testing.T, b *bench) {
				b.putOpen("a", "echo", checkpoint.Snapshot{State: []byte("s")})
				lease := b.claim()
				var writes atomic.Int64
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					if !on(b.Names.Records, storage.OpSetBlobMetadata)(c) {
						return storage.Fault{}
					}
					if writes.Add(1) > 1 {
						return storage.Fault{}
					}
					return storage.Fault{Before: 5 * time.Second}
				})
				wait := b.begin(lease)
				time.Sleep(time.Second)
				found := b.Record("a")
				d := checkpoint.Delivery{ID: "a", Kind: "echo", PayloadHash: found.PayloadHash, MessageID: cmp.Or(row.message, lease.ID)}
				theirs, err := b.Records.Acquire(t.Context(), d, found, "vm_1-boot-1")
				if err == nil && row.commits {
					err = theirs.Commit(t.Context(), []byte("theirs"))
				}
				if err != nil {
					t.Fatal(err)
				}
				wait()
				if r := b.Record("a"); r.Owner != "vm_1-boot-1" || r.Generation != 2 || b.counter.WithPrefix("started") != 0 {
					t.Errorf("record of %s, generation %d, %d starts; want it as the other worker left it", r.Owner, r.Generation,
						b.counter.WithPrefix("started"))
				}
				if got := b.counter.Of(row.outcome)[row.outcome]; got != 1 || b.MessagesLeft() != row.left || b.visible() != 0 {
					t.Errorf("%q %d times, %d messages, %d visible; want once, %d, none", row.outcome, got, b.MessagesLeft(), b.visible(), row.left)
				}
			})
		})
	}
}

// TestStopBeforeTheStart: a job whose record, state or list of outputs cannot be read is released when the worker stops, and a call that
// ends because of the stop is not announced as a repeated call.
func TestStopBeforeTheStart(t *testing.T) {
	for name, row := range map[string]struct {
		hangs      func(b *bench) func(c storage.Call) bool
		generation int
	}{
		"the record":  {func(b *bench) func(storage.Call) bool { return on(b.Names.Records, storage.OpGetBlobProperties) }, 1},
		"the state":   {func(b *bench) func(storage.Call) bool { return on(b.Names.Records, storage.OpGetBlob) }, 2},
		"the outputs": {func(b *bench) func(storage.Call) bool { return on(b.Names.Outputs, storage.OpGetBlob) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(ctx context.Context, j *job.Job) ([]byte, error) {
				j.Report(job.Progress{State: []byte("s")})
				return nil, errors.Join(j.SendOutput(ctx, "x", strings.NewReader("x")), job.Interrupted(errors.New("wait")))
			}
			onBench(t, job.Kinds{"k": job.WithLimits(job.HandlerFunc(run), job.Limits{Backoff: time.Second})}, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				b.runOne()
				time.Sleep(2 * time.Second)
				lease := b.claim()
				b.delay(time.Hour, row.hangs(b))
				wait := b.begin(lease)
				time.Sleep(5 * time.Second)
				b.drainNow(10 * time.Second)
				wait()
				b.Server.OnCall(nil)
				r := b.Record("a")
				if r.Status != checkpoint.Open || r.Generation != row.generation || !r.HasState() || r.Outputs.Files != 1 || b.visible() != 1 {
					t.Errorf("record = %s of generation %d, state %t, %d outputs, %d visible messages; want it open, %d, as before, one", r.Status,
						r.Generation, r.HasState(), r.Outputs.Files, b.visible(), row.generation)
				}
				if n := b.counter.Of("ended released")["ended released"]; n != 2 || b.counter.WithPrefix("started") != 1 ||
					b.lines("storage is unavailable; trying again") != 0 {
					t.Errorf("%d releases, %d starts, %d lines about a repeat; want 2, one, none", n, b.counter.WithPrefix("started"),
						b.lines("storage is unavailable; trying again"))
				}
			})
		})
	}
}

// TestTakenOverAtTheEnd: a job whose record another worker took is dropped at once when its result cannot be recorded.
func TestTakenOverAtTheEnd(t *testing.T) {
	kinds := handle(func(ctx context.Context, _ *job.Job) ([]byte, error) {
		return []byte("ours"), sleeps(ctx, 14*time.Second)
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		begun := time.Now()
		wait := b.begin(b.claim())
		time.Sleep(12 * time.Second)
		b.loseWorker("a")
		if wait(); b.counter.Of("ended dropped")["ended dropped"] != 1 || time.Since(begun) != 14*time.Second ||
			b.lines("storage is unavailable; trying again") != 0 || b.lines("storage refused the call; trying again") != 0 {
			t.Errorf("ended after %s, want it dropped at once, without a repeat", time.Since(begun))
		}
	})
}

// TestAcquireThatIsRefused: a job whose record storage permanently refuses to change, or to read, is requeued.
func TestAcquireThatIsRefused(t *testing.T) {
	for name, operations := range map[string][]string{
		"writes": {storage.OpSetBlobMetadata, storage.OpPutBlob}, "reads": {storage.OpGetBlobProperties},
	} {
		t.Run(name, func(t *testing.T) { acquireRefused(t, operations) })
	}
}

func acquireRefused(t *testing.T, operations []string) {
	t.Helper()
	onBench(t, job.Kinds{"echo": rig.Echo}, func(t *testing.T, b *bench) {
		b.putOpen("a", "echo", checkpoint.Snapshot{State: []byte("s")})
		end := b.fail(409, "BlobImmutableDueToPolicy", on(b.Names.Records, operations...))
		if got := b.runOne(); got != delivery.NotRun {
			t.Errorf("result = %d, want %d: requeued", got, delivery.NotRun)
		}
		end()
		if r := b.Record("a"); r.Status != checkpoint.Open || b.counter.WithPrefix("started") != 0 ||
			b.counter.Of("refused BlobImmutableDueToPolicy")["refused BlobImmutableDueToPolicy"] != 1 {
			t.Errorf("record = %s, %d starts; want it open, not started, and the refusal counted", r.Status, b.counter.WithPrefix("started"))
		}
	})
}
