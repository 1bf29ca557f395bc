package delivery_test

import (
	"context"
	"errors"
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
		failed := b.lines("job not moved to another queue; it stays on its own until it is interrupted again")
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

// TestMoveByProgress: the last report of a job, and when it began first, decide whether a release moves it.
func TestMoveByProgress(t *testing.T) {
	const m = time.Minute
	for name, row := range map[string]struct {
		last  job.Progress
		began time.Duration // ago
		due   time.Duration
		moved bool
	}{
		"nothing is done":            {job.Progress{}, 0, 45 * m, true},
		"nearly done, not saved":     {job.Progress{State: []byte("s"), Fraction: 0.9}, 0, 45 * m, false},
		"nearly done, no state":      {job.Progress{Fraction: 0.9}, 0, 45 * m, true},
		"failed, and began now":      {job.Progress{State: []byte("s"), Fraction: 0.01}, 2 * m, 120 * m, false},
		"failed, and began long ago": {job.Progress{State: []byte("s"), Fraction: 0.01}, 10 * time.Hour, 120 * m, true},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				<-ctx.Done()
				j.Report(row.last)
				return nil, context.Cause(ctx)
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				e := queue.Envelope{ID: "a", Kind: "k", Resume: row.began > 0, Estimate: 30 * m, Deadline: time.Now().Add(row.began + row.due)}
				b.put(e)
				if row.began > 0 {
					c := b.Records.Fresh(former(e), "vm_9-boot-1")
					if err := c.Touch(t.Context(), checkpoint.Snapshot{}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(row.began - m)
					if err := c.Fail(t.Context(), checkpoint.Snapshot{}, "out of luck"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(m)
				}
				wait := b.begin(b.claim())
				time.Sleep(3 * time.Second) // nothing is saved yet
				b.drainNow(10 * time.Second)
				wait()
				if moved := b.onDemand() == 1; moved != row.moved || b.counter.WithPrefix("started") != 1 || b.MessagesLeft() != 1 {
					t.Errorf("moved: %t, %d starts, %d messages; want moved: %t, one, one", moved, b.counter.WithPrefix("started"), b.MessagesLeft(),
						row.moved)
				}
			}, func(b *bench) { b.config.Changeover = 10 * m })
		})
	}
}

// TestMoveOnClaim: a job that lost a VM and has too little time for losing another one moves before its handler is called. A new job
// does not move here, and neither does a job with a reason to move from its last release.
func TestMoveOnClaim(t *testing.T) {
	const m = time.Minute
	for name, row := range map[string]struct {
		released bool // by a worker that it lost
		moveFor  string
		last     checkpoint.Snapshot
		failed   bool          // and not released
		waits    time.Duration // before it is claimed again
		due      time.Duration // from then
		moved    bool
	}{
		"never started":           {false, "", checkpoint.Snapshot{}, false, 0, 45 * m, false},
		"released":                {true, "", checkpoint.Snapshot{}, false, 0, 45 * m, true},
		"released, nearly done":   {true, "", checkpoint.Snapshot{State: []byte("s"), Fraction: 0.9}, false, 0, 45 * m, false},
		"released, in time":       {true, "", checkpoint.Snapshot{}, false, 0, 300 * m, false},
		"released, too late":      {true, "", checkpoint.Snapshot{}, false, 0, 14 * m, false},
		"was to move":             {true, "soon", checkpoint.Snapshot{}, false, 0, 45 * m, false},
		"failed, was soon here":   {true, "", checkpoint.Snapshot{}, true, m, 55 * m, false},
		"failed, waited for long": {true, "", checkpoint.Snapshot{}, true, 20 * m, 55 * m, true},
	} {
		t.Run(name, func(t *testing.T) {
			set := func(b *bench) { b.config.Changeover = 10 * m }
			onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
				e := queue.Envelope{ID: "a", Kind: "k", ChosenID: true, Resume: row.released, Estimate: 30 * m,
					Deadline: time.Now().Add(row.waits + row.due)}
				if row.released {
					c := b.Records.Fresh(former(e), "vm_9-boot-1")
					c.SetFacts(func(f checkpoint.Facts) checkpoint.Facts {
						f.MoveReason = row.moveFor
						return f
					})
					end := c.Release
					if row.failed {
						end = func(ctx context.Context, s checkpoint.Snapshot) error { return c.Fail(ctx, s, "out of luck") }
					}
					if err := errors.Join(c.Touch(t.Context(), checkpoint.Snapshot{}), end(t.Context(), row.last)); err != nil {
						t.Fatal(err)
					}
				}
				b.put(e)
				time.Sleep(row.waits)
				b.runOne()
				started := b.counter.WithPrefix("started")
				if moved := b.onDemand() == 1; moved != row.moved || (started == 1) == row.moved || (b.Record("a").Status == checkpoint.Open) != moved {
					t.Errorf("moved: %t, after %d starts, record %s; want moved: %t", moved, started, b.Record("a").Status, row.moved)
				}
			}, set)
		})
	}
}

// TestRiskOfARedelivery: the record decides whether a job that a worker claimed before may have to move while it waits.
func TestRiskOfARedelivery(t *testing.T) {
	for name, row := range map[string]struct {
		record  string // message of the record; empty for no record
		claimed bool
		found   int
	}{
		"new": {"", false, 1}, "claimed, without a record": {"", true, 1}, "another message has the job": {"another", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			set := func(b *bench) { b.config.Changeover = 10 * time.Minute }
			onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
				e := queue.Envelope{ID: "a", Kind: "k", Deadline: time.Now().Add(45 * time.Minute), Estimate: 30 * time.Minute}
				b.put(e)
				if row.claimed {
					if err := b.claim().Release(t.Context(), 0); err != nil {
						t.Fatal(err)
					}
				}
				if row.record != "" {
					d := checkpoint.Delivery{ID: "a", Kind: "k", MessageID: row.record, PayloadHash: e.Work()}
					if err := b.Records.Fresh(d, "vm_1-boot-1").Touch(t.Context(), checkpoint.Snapshot{}); err != nil {
						t.Fatal(err)
					}
				}
				seen, err := b.Queue.Peek(t.Context(), 32)
				if err != nil {
					t.Fatal(err)
				}
				reads := b.counted(storage.OpGetBlobProperties)
				found, err := b.AtRisk(t.Context(), seen)
				reads = b.counted(storage.OpGetBlobProperties) - reads
				if err != nil || len(found) != row.found || (reads == 1) != row.claimed || reads > 1 {
					t.Errorf("at risk = %d messages, %v, after %d reads; want %d, and a read: %t", len(found), err, reads, row.found, row.claimed)
				}
			}, set)
		})
	}
}

// TestClaimAfterAMoveThatFailed: jobs that would move at their claim, or wait for another machine, are started, or wait on, as long as the
// on-demand queue is not tried after a move that failed.
func TestClaimAfterAMoveThatFailed(t *testing.T) {
	for name, row := range map[string]struct {
		machine string
		started int
	}{"another job": {"large", 1}, "a job for another machine": {"small", 0}} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": picky{row.machine}}, func(t *testing.T, b *bench) {
				b.write(b.regular("vm_1-boot-1", "large"))
				b.putDue("first", 45*time.Minute)
				end := b.fail(http.StatusForbidden, "AuthorizationPermissionMismatch", func(c storage.Call) bool {
					return c.Operation == storage.OpPutMessage && c.Queue == b.Names.OnDemand
				})
				lease := b.claim()
				b.putDue("second", 45*time.Minute)
				time.Sleep(time.Second)
				next := b.claim()
				if b.begin(lease)(); b.lines("job not moved to another queue; it stays on its own until it is interrupted again") != 1 {
					t.Fatal("the first job does not try to move")
				}
				end()
				b.begin(next)()
				if n := b.counter.WithPrefix("started"); n != row.started || b.onDemand() != 0 || b.Record("second").MoveReason != "" {
					t.Errorf("%d starts, %d messages on the on-demand queue; want %d, none", n, b.onDemand(), row.started)
				}
			}, func(b *bench) { b.config.Changeover = 10 * time.Minute })
		})
	}
}

// TestStaysOnDemand: a job on the on-demand queue is started there, and stays there when it is released, however often it was
// interrupted and whatever its deadline.
func TestStaysOnDemand(t *testing.T) {
	for _, reason := range []string{"", "it moved here"} { // of the last release
		t.Run(reason, func(t *testing.T) { staysOnDemand(t, reason) })
	}
}

func staysOnDemand(t *testing.T, reason string) {
	t.Helper()
	const m = time.Minute
	set := func(b *bench) { b.config.MoveAfter, b.config.Changeover = 1, 10*m }
	onBench(t, job.Kinds{"k": &rig.SteadyReporter{}}, func(t *testing.T, b *bench) {
		e := queue.Envelope{ID: "a", Kind: "k", Resume: true, EnqueuedAt: time.Now(), Deadline: time.Now().Add(45 * m), Estimate: 30 * m}
		c := b.Records.Fresh(former(e), "vm_9-boot-1")
		c.SetFacts(func(f checkpoint.Facts) checkpoint.Facts {
			f.MoveReason = reason
			return f
		})
		there := b.config.Stores.OnDemand
		if err := errors.Join(c.Touch(t.Context(), checkpoint.Snapshot{}), c.Release(t.Context(), checkpoint.Snapshot{}),
			there.Put(t.Context(), e, 0)); err != nil {
			t.Fatal(err)
		}
		before := b.Server.Messages(b.Names.OnDemand)[0].ID
		claim := func() *queue.Lease {
			t.Helper()
			leases, err := there.Claim(t.Context(), 1, 30*time.Second)
			if err != nil || len(leases) != 1 {
				t.Fatalf("claim = %d messages, %v, want one", len(leases), err)
			}
			return leases[0]
		}
		if got := b.OpenWaiting(claim()).Run(b.ctx, b.cleanup); got != delivery.NotRun || b.Record("a").Interruptions != 1 {
			t.Errorf("a move from the on-demand queue: %d, record after %d interruptions; want it left there, one", got,
				b.Record("a").Interruptions)
		}
		wait := b.begin(claim())
		time.Sleep(m)
		b.drainNow(10 * time.Second)
		wait()
		left := b.Server.Messages(b.Names.OnDemand)
		if len(left) != 1 || left[0].ID != before || !left[0].Visible || len(b.Server.Messages(b.Names.Queue)) != 0 {
			t.Errorf("messages on the on-demand queue = %+v, want the one of before, visible", left)
		}
		r := b.Record("a")
		if r.Status != checkpoint.Open || r.Interruptions != 2 || r.MoveReason != reason || b.counter.WithPrefix("moved") != 0 ||
			b.counter.WithPrefix("started") != 1 || b.counter.Of("ended released")["ended released"] != 1 {
			t.Errorf("record = %s after %d interruptions, moved because %q, %d starts; want it open after 2, as before, one", r.Status,
				r.Interruptions, r.MoveReason, b.counter.WithPrefix("started"))
		}
	}, set)
}
