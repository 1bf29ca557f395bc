package hostile

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestUnknownKindOfTheFuture: a message of an unknown kind is dead-lettered even if its
// put_back_since is a time that no worker can have written, far in the past or future.
func TestUnknownKindOfTheFuture(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.PutText(put64(`{"v":1,"id":"late","kind":"unheard-of","put_back_since":"9998-01-01T00:00:00Z"}`))
		b.PutText(put64(`{"v":1,"id":"early","kind":"unheard-of","put_back_since":"0001-01-02T00:00:00Z"}`))
		b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		b.WaitFor("the message of the past poisoned", time.Minute, func() bool { return b.Record("early").Status == checkpoint.Poison })
		b.WaitFor("the message of the future poisoned", 90*time.Minute, func() bool {
			return b.Record("late").Status == checkpoint.Poison &&
				b.MessagesLeft() == 0
		})
	})
}

// TestForgedFields: false values in the envelope fields that only workers write, or that
// set a job's limits, affect no other job.
func TestForgedFields(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.PutText(put64(`{"v":1,"id":"resumed","kind":"echo","payload":1,"resume":true}`))
		b.PutText(put64(`{"v":1,"id":"put-back","kind":"echo","payload":1,"put_back_since":"0001-01-02T00:00:00Z"}`))
		b.PutText(put64(`{"v":1,"id":"to-come","kind":"echo","payload":1,"put_back_since":"9998-01-01T00:00:00Z"}`))
		b.PutText(put64(`{"v":1,"id":"overdue","kind":"echo","payload":1,"deadline":"0001-01-02T00:00:00Z",` +
			`"enqueued_at":"9999-01-01T00:00:00Z"}`))
		b.PutText(put64(`{"v":1,"id":"unbounded","kind":"bounded","payload":1,"max_run":1000000000,"max_silence":1000000000}`))
		b.Start("vm_0", job.Kinds{"echo": rig.Echo, "bounded": job.WithLimits(newForever(), job.Limits{MaxRun: 20 * time.Second})})
		for _, id := range []string{"resumed", "put-back", "to-come", "overdue"} {
			b.WaitDone(id, time.Minute)
		}
		b.WaitFor("the kind's own limit", time.Minute, func() bool { return b.Record("unbounded").Status == checkpoint.Poison })
		if r := b.Record("unbounded"); !strings.Contains(r.Reason, "20s are allowed") {
			t.Errorf("reason = %q, want the kind's limit", r.Reason)
		}
	})
}

// newForever returns a handler that waits until it is stopped.
func newForever() job.Handler {
	return job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
}

// TestUsedID: a message with the id of a running job but another kind or payload is
// dead-lettered, and the job continues unaffected.
func TestUsedID(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 100, Each: time.Second}
		b.Put("a", "steps", "")
		b.Start("vm_0", job.Kinds{"steps": work, "echo": onlyFor("none")})
		b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("a").HasState() })
		b.PutText(put64(`{"v":1,"id":"a","kind":"steps","payload":"mine","resume":true,"max_run":1}`))
		b.PutText(put64(`{"v":1,"id":"a","kind":"echo","resume":true}`))
		b.WaitFor("both poisoned", time.Minute, func() bool { return len(b.PoisonMessages()) == 2 })
		b.WaitDone("a", 3*time.Minute)
		if r := b.Record("a"); r.Generation != 1 || work.Repeated("a") != 0 {
			t.Errorf("generation %d, %d steps repeated, want 1 and 0", r.Generation, work.Repeated("a"))
		}
	})
}
