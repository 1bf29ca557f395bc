package delivery_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// onDemand returns how many messages are on the on-demand queue.
func (b *bench) onDemand() int { return len(b.Server.Messages(b.Names.OnDemand)) }

// TestReleaseWithoutStores: a worker without an on-demand queue, a container for outputs or logs releases jobs as others do.
func TestReleaseWithoutStores(t *testing.T) {
	set := func(b *bench) {
		b.config.MoveAfter, b.config.Changeover = 1, 10*time.Minute
		b.config.Stores.OnDemand, b.config.Stores.Outputs, b.config.Stores.Logs = nil, nil, nil
	}
	onBench(t, job.Kinds{"k": &rig.SteadyReporter{}}, func(t *testing.T, b *bench) {
		b.PutDue("a", "k", 40*time.Minute, 30*time.Minute)
		seen, err := b.Queue.Peek(t.Context(), 1)
		if found, atRisk := b.AtRisk(t.Context(), seen); err != nil || atRisk != nil || len(found) != 0 {
			t.Errorf("at risk = %d messages, %v, %v; want none without a queue to move them to", len(found), atRisk, err)
		}
		if got := b.OpenWaiting(b.claim()).Run(b.ctx, b.cleanup); got != delivery.NotRun || b.visible() != 1 {
			t.Errorf("a move without a queue: %d, %d visible messages; want it left on its own, one", got, b.visible())
		}
		wait := b.begin(b.claim())
		time.Sleep(time.Minute)
		b.drainNow(10 * time.Second)
		wait()
		if r := b.Record("a"); r.Status != checkpoint.Open || r.MoveReason != "" || !r.HasState() || b.visible() != 1 || b.onDemand() != 0 {
			t.Errorf("record = %s, moved because %q, %d visible; want it released", r.Status, r.MoveReason, b.visible())
		}
	}, set)
}

// TestReleaseUnstarted: messages that were claimed ahead become visible at once, or are left if storage is unavailable.
func TestReleaseUnstarted(t *testing.T) {
	onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		b.Put("b", "other", "")
		leases := []*queue.Lease{b.claim(), b.claim()}
		if !b.Has(leases[0]) || b.Has(leases[1]) {
			t.Errorf("has = %t, %t, want the kind of the first", b.Has(leases[0]), b.Has(leases[1]))
		}
		b.PutText("resize image 7")
		leases = append(leases, b.claim())
		if !b.Has(leases[2]) {
			t.Error("a message without a kind is no work for this worker, so no worker removes it")
		}
		const line = "message not released; it becomes visible when its visibility timeout expires"
		end := b.down(func(c storage.Call) bool { return c.Operation == storage.OpUpdateMessage })
		if b.ReleaseUnstarted(t.Context(), leases[:1]); b.lines(line) != 1 || b.visible() != 0 {
			t.Errorf("%d lines, %d visible messages in an outage; want 1, none", b.lines(line), b.visible())
		}
		end()
		if b.ReleaseUnstarted(t.Context(), leases); b.lines(line) != 1 || b.visible() != 3 {
			t.Errorf("%d lines, %d visible messages; want the line of before, all three", b.lines(line), b.visible())
		}
		const n = 2*drain.Parallel + 2
		for i := range n - 3 {
			b.Put(fmt.Sprint("job-", i), "k", "")
		}
		for leases = nil; len(leases) < n; {
			leases = append(leases, b.claim())
		}
		b.delay(10*time.Millisecond, func(c storage.Call) bool { return c.Operation == storage.OpUpdateMessage })
		begun := time.Now()
		if b.ReleaseUnstarted(t.Context(), leases); b.visible() != n || time.Since(begun) != 30*time.Millisecond {
			t.Errorf("%d visible messages after %s, want %d after three calls of 10 ms, since %d run at once", b.visible(), time.Since(begun), n,
				drain.Parallel)
		}
	})
}

// TestMoveThatFails: a job whose move fails becomes visible on its own queue, and so does the next one, for which
// the on-demand queue is not tried for half a minute. Jobs that wait are not searched either.
func TestMoveThatFails(t *testing.T) {
	set := func(b *bench) { b.config.MoveAfter, b.config.Changeover = 1, 10*time.Minute }
	onBench(t, job.Kinds{"k": &rig.SteadyReporter{}}, func(t *testing.T, b *bench) {
		var puts atomic.Int64
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutMessage && c.Queue == b.Names.OnDemand {
				puts.Add(1)
				return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"}}
			}
			return storage.Fault{}
		})
		var waits []func() delivery.Result
		for _, id := range []string{"a", "b", "c"} {
			b.Put(id, "k", "")
			waits = append(waits, b.begin(b.claim()))
			time.Sleep(11 * time.Second)
		}
		stopped := time.Now()
		b.drainNow(10 * time.Second)
		for _, wait := range waits {
			wait()
		}
		if b.onDemand() != 0 || b.visible() != 3 || puts.Load() == 0 || b.counter.WithPrefix("moved") != 0 {
			t.Errorf("%d jobs moved, %d visible after %d puts; want none, all 3", b.onDemand(), b.visible(), puts.Load())
		}
		failed := b.lines("job not moved to the on-demand queue; it stays on its own until it is interrupted again")
		rested := b.lines("job stays on its queue: moving another one to the on-demand queue has just failed")
		if failed == 0 || failed+rested != 3 {
			t.Errorf("%d moves failed and %d were left out, want 3 together", failed, rested)
		}
		b.PutDue("risky", "k", 45*time.Minute, 30*time.Minute)
		for _, want := range []int{0, 1} {
			seen, err := b.Queue.Peek(t.Context(), 32)
			if err != nil {
				t.Fatal(err)
			}
			if found, err := b.AtRisk(t.Context(), seen); err != nil || len(found) != want {
				t.Errorf("at risk %s after the stop = %d messages, %v; want %d", time.Since(stopped), len(found), err, want)
			}
			time.Sleep(31 * time.Second)
		}
	}, set)
}

// TestMoveOfWaitingJobs: a search finds the messages whose jobs would miss their deadlines, and moves them without
// a run of the handler. A job that need not move stays.
func TestMoveOfWaitingJobs(t *testing.T) {
	const m = time.Minute
	set := func(b *bench) { b.config.Changeover = 10 * m }
	onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
		own := b.config.Stores.Queue
		b.PutDue("safe", "k", 300*m, 30*m)
		b.PutDue("risky", "k", 45*m, 30*m)
		b.PutDue("unknown", "other", 45*m, 30*m)
		b.PutDue("none", "k", 0, 30*m)
		held := b.Records.Fresh(checkpoint.Delivery{
			ID: "taken", Kind: "k", MessageID: "another", PayloadHash: queue.Envelope{}.Work(),
		}, "vm_1-boot-1")
		if err := held.Touch(t.Context(), checkpoint.Snapshot{}); err != nil {
			t.Fatal(err)
		}
		b.put(queue.Envelope{ID: "taken", Kind: "k", ChosenID: true, Deadline: time.Now().Add(45 * m), Estimate: 30 * m})
		b.put(queue.Envelope{ID: "chosen", Kind: "k", ChosenID: true, Deadline: time.Now().Add(45 * m), Estimate: 30 * m})
		seen, err := own.Peek(t.Context(), 32)
		if err != nil || len(seen) != 6 || !b.MayWait(seen) || b.MayWait(seen[2:4]) {
			t.Fatalf("%d messages, %v, may wait: %t and %t; want 6, some of all, and none of two", len(seen), err, b.MayWait(seen),
				b.MayWait(seen[2:4]))
		}
		found, err := b.AtRisk(t.Context(), seen)
		if err != nil || len(found) != 2 || found[0].ID != seen[1].ID || found[1].ID != seen[5].ID {
			t.Errorf("at risk = %d messages, %v; want those of risky and chosen", len(found), err)
		}
		end := b.fail(http.StatusForbidden, "AuthorizationPermissionMismatch", on(b.Names.Records, storage.OpGetBlobProperties))
		if found, err := b.AtRisk(t.Context(), seen); err == nil {
			t.Errorf("at risk while records cannot be read = %d messages, want an error", len(found))
		}
		end()
		b.Follow(&control.Document{PausedKinds: map[string]control.Mark{"k": {}}})
		if b.MayWait(seen) {
			t.Error("jobs of a paused kind may move while they wait")
		}
		b.Follow(nil)

		leases, err := own.Claim(t.Context(), 32, time.Minute)
		if err != nil || len(leases) != 6 {
			t.Fatalf("claim = %d messages, %v, want 6", len(leases), err)
		}
		for _, lease := range leases {
			if id := decoded(t, lease.Text()).ID; id == "safe" || id == "risky" {
				b.OpenWaiting(lease).Run(b.ctx, b.cleanup)
			}
		}
		if b.onDemand() != 1 || b.visible() != 1 || b.MessagesLeft() != 6 || b.counter.WithPrefix("started") != 0 {
			t.Errorf("%d messages on the on-demand queue, %d visible, %d in all, %d starts; want 1, 1, 6, none", b.onDemand(), b.visible(),
				b.MessagesLeft(), b.counter.WithPrefix("started"))
		}
		if r := b.Record("risky"); r.Status != checkpoint.Open || !strings.Contains(r.MoveReason, "no worker claims it") ||
			b.Record("safe").Status != "" {
			t.Errorf("record of the moved job = %s %q, of the other %s; want open with the reason, none", r.Status, r.MoveReason,
				b.Record("safe").Status)
		}
	}, set)
}

// TestMoveOfADuplicate: a message that waited does not move while this worker runs its job for another message.
func TestMoveOfADuplicate(t *testing.T) {
	onBench(t, job.Kinds{"k": &rig.SteadyReporter{}}, func(t *testing.T, b *bench) {
		for range 2 {
			b.PutDue("a", "k", 45*time.Minute, 30*time.Minute)
		}
		first, second := b.claim(), b.claim()
		wait := b.begin(first)
		time.Sleep(time.Second) // the job has no record yet
		if got := b.run(b.OpenWaiting(second))(); got != delivery.NotRun || b.onDemand() != 0 || b.Record("a").Generation > 1 {
			t.Errorf("the duplicate: %d, %d messages on the on-demand queue, record of generation %d; want it put back", got, b.onDemand(),
				b.Record("a").Generation)
		}
		b.drainNow(10 * time.Second)
		if wait(); b.counter.Of("ended moved")["ended moved"] != 1 || b.counter.Of("ended put_back")["ended put_back"] != 1 {
			t.Errorf("%v, want the job moved by its release alone", b.counter.Of("ended moved", "ended put_back", "ended dropped"))
		}
	}, func(b *bench) { b.config.Changeover = 10 * time.Minute })
}
