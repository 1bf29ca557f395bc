package delivery_test

import (
	"context"
	"errors"
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
