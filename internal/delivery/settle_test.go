package delivery_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestRefusedCommit: a result whose record storage refuses is kept for longer than a lease of a
// minute, and then its slot is free. A payload that cannot be deleted frees it after a few tries.
func TestRefusedCommit(t *testing.T) {
	const refusal = "refused BlobImmutableDueToPolicy"
	for name, row := range map[string]struct {
		container string
		exists    bool // a record
		lasts     time.Duration
		requeued  bool
		status    checkpoint.Status
		within    [2]time.Duration
	}{
		"the record, for a minute": {"records", false, time.Minute, false, checkpoint.Done, [2]time.Duration{time.Minute, 75 * time.Second}},
		"the record, for longer":   {"records", false, time.Hour, true, "", [2]time.Duration{75 * time.Second, 2 * time.Minute}},
		"the record before, for longer": {"records", true, time.Hour, true, checkpoint.Running,
			[2]time.Duration{75 * time.Second, 2 * time.Minute}},
		"the payload, for any length": {"payloads", false, time.Hour, true, checkpoint.Done, [2]time.Duration{time.Second, 5 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			var run func()
			kinds := handle(func(context.Context, *job.Job) ([]byte, error) {
				run()
				return []byte("r"), nil
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				if row.exists {
					b.putOpen("a", "k", checkpoint.Snapshot{State: []byte("s")})
				} else {
					b.PutLarge("a", "k", make([]byte, 100<<10))
				}
				chosen := on(b.Names.Records, storage.OpPutBlob, storage.OpSetBlobMetadata)
				if row.container == "payloads" {
					chosen = on(b.Names.Payloads, storage.OpDeleteBlob)
				}
				begun := time.Now()
				run = func() { // by then the job has acquired its record
					b.fail(409, "BlobImmutableDueToPolicy", func(c storage.Call) bool { return chosen(c) && time.Since(begun) < row.lasts })
				}
				got, took := b.runOne(), time.Since(begun)
				if got != delivery.Ran || took < row.within[0] || took > row.within[1] {
					t.Errorf("result %d after %s, want %d within %s", got, took, delivery.Ran, row.within)
				}
				if r := b.Record("a"); r.Status != row.status {
					t.Errorf("record = %s, want %q", r.Status, row.status)
				}
				refused, left := 0, 0
				if row.requeued {
					refused, left = 1, 1
				}
				if n := b.counter.Of(refusal)[refusal]; n != refused || b.MessagesLeft() != left || b.visible() != 0 {
					t.Errorf("%d refusals counted, %d messages, %d visible; want %d, %d, none", n, b.MessagesLeft(), b.visible(), refused, left)
				}
			})
		})
	}
}

// TestRefusedLoad: a job whose payload storage refuses to give is requeued with its record open, also
// if the release of the record and the requeue of the message need a second try.
func TestRefusedLoad(t *testing.T) {
	onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
		b.PutLarge("a", "k", make([]byte, 100<<10))
		lease := b.claim()
		if err := lease.Release(t.Context(), 0); err != nil { // so that the next claim finds a record to make
			t.Fatal(err)
		}
		refused, unavailable := on(b.Names.Payloads, storage.OpGetBlob), on(b.Names.Records, storage.OpSetBlobMetadata)
		busy, updates, begun := 0, 0, time.Now()
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			switch {
			case refused(c):
				return storage.Fault{Refuse: &storage.Error{Status: 409, Code: "BlobArchived", Message: "archived"}}
			case unavailable(c) && time.Since(begun) < 15*time.Second:
				busy++
				return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch", Message: "no role"}}
			case c.Operation == storage.OpUpdateMessage && time.Since(begun) < 25*time.Second:
				updates++
				return storage.Fault{Refuse: &storage.Error{Status: 503, Code: "ServerBusy", Message: "busy"}}
			}
			return storage.Fault{}
		})
		if got := b.runOne(); got != delivery.NotRun {
			t.Errorf("result = %d, want %d: requeued", got, delivery.NotRun)
		}
		if r := b.Record("a"); r.Status != checkpoint.Open || r.FailuresTotal != 0 || b.counter.Of("started first")["started first"] != 0 {
			t.Errorf("record = %s after %d failures, want it open, and never started", r.Status, r.FailuresTotal)
		}
		if since := decoded(t, b.Server.Messages(b.Names.Queue)[0].Text).PutBackSince; updates == 0 || since.IsZero() || b.visible() != 0 {
			t.Errorf("%d updates refused, put back since %s, %d visible; want some, a time, none", updates, since, b.visible())
		}
		if busy == 0 || b.lines("job requeued: storage refuses a blob of it until somebody changes that") != 1 {
			t.Errorf("%d calls were unavailable, want some, and one line about the refusal", busy)
		}
	})
}

// TestStopDuringRefusals: a job whose payload storage refuses to give is released, and not requeued for later, if the worker stops before
// it has tried often enough.
func TestStopDuringRefusals(t *testing.T) {
	for name, row := range map[string]struct {
		stops   time.Duration
		result  delivery.Result
		visible int
	}{"before the last try": {700 * time.Millisecond, delivery.Ran, 1}, "after it": {3 * time.Second, delivery.NotRun, 0}} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
				b.PutLarge("a", "k", make([]byte, 100<<10))
				b.fail(409, "BlobArchived", on(b.Names.Payloads, storage.OpGetBlob))
				wait := b.begin(b.claim())
				time.Sleep(row.stops)
				b.drainNow(10 * time.Second)
				if got, refused := wait(), b.counter.WithPrefix("refused"); got != row.result || b.visible() != row.visible || refused == row.visible {
					t.Errorf("result %d, %d visible messages, %d refusals counted; want %d, %d, and a refusal if it is not visible", got, b.visible(),
						refused, row.result, row.visible)
				}
			})
		})
	}
}

// TestRefusedBreak: a job that takes a break, and whose record storage refuses, is requeued after a few tries: it has no result to lose.
func TestRefusedBreak(t *testing.T) {
	var b *bench
	kinds := handle(func(context.Context, *job.Job) ([]byte, error) {
		b.fail(409, "BlobImmutableDueToPolicy", on(b.Names.Records, storage.OpPutBlob, storage.OpSetBlobMetadata))
		return nil, job.Interrupted(errors.New("wait"))
	})
	onBench(t, kinds, func(t *testing.T, bed *bench) {
		b = bed
		b.putOpen("a", "k", checkpoint.Snapshot{State: []byte("s")})
		begun := time.Now()
		b.runOne()
		if n, took := b.counter.WithPrefix("refused"), time.Since(begun); n != 1 || took > 5*time.Second || b.MessagesLeft() != 1 {
			t.Errorf("%d refusals counted after %s, %d messages; want one within seconds, one", n, took, b.MessagesLeft())
		}
	})
}

// TestRefusalInADrain: a call that storage refuses once in a drain is repeated after half a second.
func TestRefusalInADrain(t *testing.T) {
	onBench(t, job.Kinds{"k": &rig.SteadyReporter{}}, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		wait := b.begin(b.claim())
		time.Sleep(2 * time.Second)
		refused := 0
		b.fail(http.StatusForbidden, "AuthorizationFailure", func(c storage.Call) bool {
			if c.Operation == storage.OpUpdateMessage {
				refused++
			}
			return c.Operation == storage.OpUpdateMessage && refused == 1
		})
		begun := time.Now()
		b.drainNow(10 * time.Second)
		if wait(); time.Since(begun) != 500*time.Millisecond || b.visible() != 1 || b.Record("a").Interruptions != 1 {
			t.Errorf("%d visible messages after %s and %d interruptions, want one after 500ms and one", b.visible(), time.Since(begun),
				b.Record("a").Interruptions)
		}
	})
}

// TestStateThatIsNotSentInTime: a state that cannot be sent in three quarters of a drain's budget is left out, and the record is opened
// without it. A state whose write took effect is not left out, although the worker learned that too late.
func TestStateThatIsNotSentInTime(t *testing.T) {
	noRole := &storage.Error{Status: 403, Code: "AuthorizationFailure", Message: "no"}
	for name, row := range map[string]struct {
		fault   storage.Fault // of the write with the state
		leftOut int
	}{
		"refused":       {storage.Fault{Before: 10 * time.Millisecond, Refuse: noRole}, 1},
		"no reply":      {storage.Fault{Before: time.Hour}, 1},
		"a late answer": {storage.Fault{After: time.Hour}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				<-ctx.Done()
				j.Report(job.Progress{State: []byte("last"), Fraction: 0.5})
				return nil, context.Cause(ctx)
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				wait := b.begin(b.claim())
				time.Sleep(time.Minute)
				begun := time.Now()
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					switch {
					case on(b.Names.Records, storage.OpPutBlob)(c):
						return row.fault
					case on(b.Names.Records, storage.OpGetBlobProperties)(c) && time.Since(begun) < 7500*time.Millisecond:
						return storage.Fault{Before: time.Hour}
					}
					return storage.Fault{}
				})
				b.drainNow(10 * time.Second)
				wait()
				r, took := b.Record("a"), time.Since(begun)
				if r.Status != checkpoint.Open || r.Fraction != 0.5 || r.HasState() == (row.leftOut == 1) || b.visible() != 1 ||
					took < 7500*time.Millisecond || took > 9*time.Second {
					t.Errorf("record = %s at %v, state %t, %d visible messages after %s; want it open at 0.5, one, after 7.5 s", r.Status, r.Fraction,
						r.HasState(), b.visible(), took)
				}
				if c := b.Counts(); c.LeftOut != int64(row.leftOut) || b.counter.WithPrefix("left out") != row.leftOut {
					t.Errorf("counts = %+v, %d left out for the observer; want %d", c, b.counter.WithPrefix("left out"), row.leftOut)
				}
			})
		})
	}
}

// TestNoTimeLeft: a job that cannot be handed over before the end of a drain is left, and its work since the
// last checkpoint is counted as lost.
func TestNoTimeLeft(t *testing.T) {
	work := &rig.SteadyReporter{}
	onBench(t, job.Kinds{"k": work}, func(t *testing.T, b *bench) {
		b.delay(time.Second, on(b.Names.Records, storage.OpPutBlob)) // so that saves are rare
		b.Put("a", "k", "")
		wait := b.begin(b.claim())
		time.Sleep(5*time.Minute + 500*time.Millisecond)
		saved := b.Record("a")
		if !saved.HasState() {
			t.Fatal("no state was saved")
		}
		b.down(func(c storage.Call) bool { return c.Operation != storage.OpGetBlobProperties })
		begun := time.Now()
		b.drainNow(10 * time.Second)
		if got, took := wait(), time.Since(begun); got != delivery.Ran || took < 9*time.Second || took > 12*time.Second {
			t.Errorf("result %d after %s, want the end of the budget of 10s", got, took)
		}
		counts := b.Counts()
		if n := b.counter.Of("ended left")["ended left"]; counts != (delivery.Counts{Late: 1}) || n != 1 {
			t.Errorf("counts = %+v, %d left; want one job late", counts, n)
		}
		if r := b.Record("a"); r.Status != checkpoint.Running || b.MessagesLeft() != 1 {
			t.Errorf("record = %s, %d messages; want it running, and its message left", r.Status, b.MessagesLeft())
		}
		late := b.log.Find("no time left; the message becomes visible when its visibility timeout expires")
		if len(late) != 1 || late[0]["level"] != "ERROR" || late[0]["outcome"] != "interrupted" || late[0]["suppressed"] != 0.0 {
			t.Errorf("lines = %v, want one error about the interrupted job", late)
		}
		kept, lost := b.counter.Times["k, handed_over"], b.counter.Times["k, redone"]
		if kept+lost < 5*time.Minute || kept == 0 || lost == 0 || kept > saved.RunTime+2*time.Second {
			t.Errorf("handler's time: %s handed over and %s to be done again, want the checkpoint's part and the rest", kept, lost)
		}
	})
}

// TestReleaseInADrain: a stopped job is released with its last state, and its message is visible at once. The
// message of a job that took a break stays hidden.
func TestReleaseInADrain(t *testing.T) {
	last := byte(0)
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		for {
			last++
			j.Report(job.Progress{State: []byte{last}, Fraction: float64(last) / 200})
			if err := sleeps(ctx, 7*time.Second); err != nil {
				return nil, err
			}
		}
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		wait := b.begin(b.claim())
		time.Sleep(3 * time.Minute)
		b.drainNow(10 * time.Second)
		if got := wait(); got != delivery.Ran || b.visible() != 1 {
			t.Errorf("result %d, %d visible messages; want one", got, b.visible())
		}
		if r := b.Record("a"); r.Status != checkpoint.Open || r.Interruptions != 1 || r.Fraction != float64(last)/200 || r.StateSize != 1 {
			t.Errorf("record = %s, %d interruptions, fraction %v, want it open with the last report, %d of 200", r.Status, r.Interruptions,
				r.Fraction, last)
		}
		if c := b.Counts(); c.Released != 1 || c.Late+c.LeftOut+c.Committed != 0 || b.config.Drains.Len() != 1 {
			t.Errorf("counts = %+v, %d drains; want one job released, and the drain of the worker as before", c, b.config.Drains.Len())
		}
		if lost := b.counter.Times["k, redone"]; lost != 0 && lost > 7*time.Second {
			t.Errorf("%s of the handler's time is lost, want at most the time since the last report", lost)
		}
	})
}

// TestRefusedReleaseInADrain: a job whose record storage permanently refuses is requeued after one try in a drain, which has no
// time to lose.
func TestRefusedReleaseInADrain(t *testing.T) {
	onBench(t, job.Kinds{"k": &rig.SteadyReporter{}}, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		wait := b.begin(b.claim())
		time.Sleep(2 * time.Second)
		b.fail(409, "BlobImmutableDueToPolicy", on(b.Names.Records, storage.OpPutBlob, storage.OpSetBlobMetadata))
		begun := time.Now()
		b.drainNow(10 * time.Second)
		if got, took := wait(), time.Since(begun); got != delivery.Ran || took > 100*time.Millisecond {
			t.Errorf("result %d after %s, want %d at once", got, took, delivery.Ran)
		}
		const refused = "refused BlobImmutableDueToPolicy"
		if n := b.counter.Of(refused)[refused]; n != 1 || b.MessagesLeft() != 1 || b.Record("a").Status != "" {
			t.Errorf("%d refusals counted, %d messages, record %q; want one, one, none", n, b.MessagesLeft(), b.Record("a").Status)
		}
	})
}
