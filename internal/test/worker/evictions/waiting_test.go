package evictions

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// onQueue returns the dequeue counts of the messages on the queue of jobs, by job.
func onQueue(b *rig.Bed) map[string]int64 {
	b.T.Helper()
	counts := map[string]int64{}
	for _, m := range b.Server.Messages(b.Names.Queue) {
		e, err := queue.Decode(m.Text)
		if err != nil {
			b.T.Fatal(err)
		}
		counts[e.ID] = m.DequeueCount
	}
	return counts
}

// TestWaitingJobsMove: while no Spot VM is alive, a worker of regular priority finds the
// jobs whose deadlines near, interrupted or never begun, and does them. It leaves the
// others where they are.
func TestWaitingJobsMove(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		rec := b.AddRecorder()
		work := tenMinutes()
		b.PutDue("interrupted", "steps", 40*time.Minute, 10*time.Minute)
		runFor(b, "vm_0", work, "interrupted", 12, rig.Changeover(time.Minute))
		b.PutDue("new", "steps", 25*time.Minute, 10*time.Minute)
		b.PutDue("without-estimate", "steps", 20*time.Minute, 0)
		b.PutDue("later", "steps", 24*time.Hour, 10*time.Minute)
		b.PutDue("too-late", "steps", 4*time.Minute, 10*time.Minute)
		b.PutDue("no-deadline", "steps", 0, 10*time.Minute)
		b.PutDue("of-others", "other", 25*time.Minute, 10*time.Minute)
		if n := len(onDemandMessages(b)); n != 0 {
			t.Fatalf("messages on demand after the eviction = %d, want none: there was time enough", n)
		}
		regular := b.Start("regular_0", job.Kinds{"steps": work}, rig.TakeOnDemand, rig.Changeover(time.Minute))
		b.WaitDone("interrupted", 45*time.Minute)
		b.WaitDone("new", 30*time.Minute)
		time.Sleep(time.Hour)
		for id, claims := range map[string]int{"interrupted": 3, "new": 2} { // calls of the search included
			if r := b.Record(id); !r.EndedAt.Before(r.Deadline) || !strings.Contains(r.MoveReason, "no worker claims it") || r.Failures != 0 ||
				r.Generation != claims {
				t.Errorf("record of %s = ended %s, moved because %q, %d failures, generation %d, want before %s, because no worker claims it, none, %d",
					id, r.EndedAt, r.MoveReason, r.Failures, r.Generation, r.Deadline, claims)
			}
			if n, again := rec.OutcomesOf(id), work.Repeated(id); n != 1 || again != 0 {
				t.Errorf("%s has %d outcomes and %d steps repeated, want 1 and none", id, n, again)
			}
		}
		if r := b.Record("without-estimate"); r.MoveReason == "" {
			t.Errorf("record of a job without an estimate, at its deadline = %+v, want that it moved", r)
		}
		left := onQueue(b)
		for _, id := range []string{"later", "too-late", "no-deadline", "of-others"} {
			count, there := left[id]
			if !there || count > 3 || b.Record(id).Status != "" {
				t.Errorf("%s is there %t, dequeued %d times, with record %q; want that it waits, with its neighbours' moves alone, without a record",
					id, there, count, b.Record(id).Status)
			}
		}
		if n := len(regular.Log.Find("job put on the on-demand queue")); n != 3 {
			t.Errorf("log lines about moves = %d, want 3", n)
		}
		b.Start("vm_1", job.Kinds{"steps": work, "other": work}, rig.Changeover(time.Minute))
		for _, id := range []string{"later", "too-late", "no-deadline", "of-others", "without-estimate"} {
			b.WaitDone(id, time.Hour)
		}
	})
}

// TestWaitingJobsStay: no worker moves a job that waits while another one may start it, nor
// while operators or the on-demand queue speak against a move.
func TestWaitingJobsStay(t *testing.T) {
	for _, row := range []struct {
		name    string
		prepare func(*rig.Bed)
		line    string // of the log; empty for none
	}{
		{"claiming is paused", func(b *rig.Bed) {
			edit(b, func(d *control.Document, now time.Time) { d.Pause = &control.Mark{At: now} })
		}, "claiming is paused; running jobs continue"},
		{"the kind is paused", func(b *rig.Bed) {
			edit(b, func(d *control.Document, now time.Time) { d.PausedKinds = map[string]control.Mark{"steps": {At: now}} })
		}, "kind is paused; its running jobs continue"},
		{"the worker is drained", func(b *rig.Bed) {
			edit(b, func(d *control.Document, now time.Time) { d.DrainAll = &control.Mark{At: now} })
		}, "state changed"},
		{"messages wait on the on-demand queue", func(b *rig.Bed) {
			for i := range 10 {
				b.PutOn(b.OnDemand, fmt.Sprintf("busy-%d", i), "steps", "")
			}
		}, "jobs wait and may miss their deadlines, and are not moved: messages wait on the on-demand queue too"},
		{"there is no right to read the queue", func(b *rig.Bed) {
			b.Server.OnCall(func(c storage.Call) storage.Fault {
				if c.Queue == b.Names.Queue {
					return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch", Message: "no"}}
				}
				return storage.Fault{}
			})
		}, "queue not searched for jobs that wait and may miss their deadlines: the role Storage Queue Data Contributor on it is missing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				work := tenMinutes()
				b.PutDue("new", "steps", 12*time.Minute+30*time.Second, 10*time.Minute)
				row.prepare(b)
				p := b.Start("regular_0", job.Kinds{"steps": work}, rig.TakeOnDemand, rig.Changeover(2*time.Minute))
				time.Sleep(8 * time.Minute)
				if counts := onQueue(b); len(counts) != 1 || counts["new"] != 0 {
					t.Errorf("messages on the queue of jobs and their dequeue counts = %v, want one that was not claimed", counts)
				}
				if n := len(p.Log.Find(row.line)); n == 0 {
					t.Errorf("log lines %q = none, want some", row.line)
				}
				if n := len(p.Log.Find("storage denies access")); n != 0 {
					t.Errorf("log lines about denied access = %d, want none", n)
				}
			})
		})
	}
}

// edit writes the control document as operators do.
func edit(b *rig.Bed, change func(*control.Document, time.Time)) {
	b.T.Helper()
	_, err := b.Connect(b.Transport(recorder.Operator)).Control.Edit(b.T.Context(), func(d *control.Document, now time.Time) (bool, error) {
		change(d, now)
		return true, nil
	})
	if err != nil {
		b.T.Fatal(err)
	}
}

// TestWaitingJobsOfALivingFleet: while Spot VMs have free slots they do all jobs, and a worker
// of regular priority claims none. While all slots are taken, their own workers move the jobs
// that cannot wait for them.
func TestWaitingJobsOfALivingFleet(t *testing.T) {
	for name, busy := range map[string]bool{"free slots": false, "no free slot": true} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				long := &rig.Steps{N: 3600, Each: 5 * time.Second}
				work := tenMinutes()
				spot := b.Start("vm_0", job.Kinds{"steps": work, "long": long}, rig.Changeover(time.Minute),
					func(c *worker.Config) { c.Concurrency = 2 })
				if busy {
					b.Put("long-0", "long", "")
					b.Put("long-1", "long", "")
					b.WaitFor("both slots taken", time.Minute, func() bool { return spot.ActiveJobs() == 2 })
				} else {
					b.Start("regular_0", job.Kinds{"steps": work}, rig.TakeOnDemand, rig.Changeover(time.Minute))
				}
				time.Sleep(2 * time.Minute)
				b.PutDue("near", "steps", 12*time.Minute+10*time.Second, 10*time.Minute)
				time.Sleep(5 * time.Minute)
				if moved := len(onDemandMessages(b)) == 1; moved != busy {
					t.Errorf("moved = %t with a busy fleet %t, want it moved then alone", moved, busy)
				}
				if !busy {
					b.WaitDone("near", 10*time.Minute)
					if r := b.Record("near"); r.Generation != 1 || r.MoveReason != "" {
						t.Errorf("record = generation %d, moved because %q, want 1, not moved", r.Generation, r.MoveReason)
					}
				}
			})
		})
	}
}

// TestWaitingJobsEverywhere: jobs are found on all queues of jobs, also where only
// the queues say how many there are.
func TestWaitingJobsEverywhere(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.AddRecorder()
		b.UseShards(queue.ShardCounts{Put: 2, Taken: 2})
		var ids []string
		for i, on := range b.Jobs.All() {
			for _, e := range []queue.Envelope{{ID: "plain"}, {ID: "chosen", ChosenID: true},
				{ID: "large", Payload: queue.BytesPayload(make([]byte, 50<<10))}} {
				e.ID = fmt.Sprintf("%s-%d", e.ID, i)
				ids = append(ids, e.ID)
				e.Kind, e.EnqueuedAt, e.Deadline, e.Estimate = "echo", time.Now(), time.Now().Add(25*time.Minute), 10*time.Minute
				if err := on.PutAny(t.Context(), e, 0, b.Payloads); err != nil {
					t.Fatal(err)
				}
			}
		}
		b.Start("regular_0", job.Kinds{"echo": rig.Echo}, rig.TakeOnDemand, rig.Changeover(time.Minute))
		b.WaitFor("no message left", 25*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		for _, id := range ids {
			b.CheckOutcome(t, id, checkpoint.Done)
		}
		b.Recorder.Check(t)
	})
}

// TestWaitingJobIsClaimedByAnother: a job that a Spot VM claims after the second look of a
// search has one owner, and the messages that the search claims instead are released.
func TestWaitingJobIsClaimedByAnother(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.PutDue("near", "steps", 13*time.Minute, 10*time.Minute)
		b.PutDue("next", "steps", 0, 0)
		peeks, gone := 0, make(chan []*queue.Lease, 1)
		b.Server.OnResult(func(r storage.Result) {
			if r.Operation != "PeekMessages" || r.Queue != b.Names.Queue {
				return
			}
			if peeks++; peeks != 2 {
				return
			}
			leases, err := b.Queue.Claim(context.Background(), 1, 5*time.Minute)
			if err != nil {
				t.Errorf("Claim = %v, want nil", err)
			}
			gone <- leases
		})
		p := b.Start("regular_0", job.Kinds{"steps": tenMinutes()}, rig.TakeOnDemand, rig.Changeover(2*time.Minute))
		other := <-gone
		time.Sleep(2 * time.Minute)
		if len(other) != 1 || other[0].Expired(time.Now()) || len(onDemandMessages(b)) != 0 || b.Record("near").Status != "" {
			t.Errorf("the other worker has %d messages, on demand are %d, record %q; want one, none, none",
				len(other), len(onDemandMessages(b)), b.Record("near").Status)
		}
		if counts := onQueue(b); counts["near"] != 1 || counts["next"] != 1 || b.Hidden() != 1 {
			t.Errorf("dequeue counts = %v, %d hidden, want 1 each, and that of the other worker hidden alone", counts, b.Hidden())
		}
		if n := len(p.Log.Find("job released")); n != 0 {
			t.Errorf("log lines about released jobs = %d, want none: no record was acquired", n)
		}
	})
}

// TestWaitingJobWasCancelled: of a job that was cancelled while it waited only the message is
// left, and a search deletes that.
func TestWaitingJobWasCancelled(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.PutDue("near", "steps", 13*time.Minute, 10*time.Minute)
		b.CancelJobs("near")
		b.Start("regular_0", job.Kinds{"steps": tenMinutes()}, rig.TakeOnDemand, rig.Changeover(2*time.Minute))
		b.WaitFor("message gone", 5*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if r := b.Record("near"); r.Status != checkpoint.Cancelled {
			t.Errorf("record = %s, want cancelled", r.Status)
		}
	})
}

// TestWaitingJobCannotMove: while the on-demand queue refuses messages a job that waits is
// tried once in a changeover, and it moves when the queue takes messages again.
func TestWaitingJobCannotMove(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const changeover = 4 * time.Minute
		b.PutDue("near", "steps", 30*time.Minute, 24*time.Minute)
		puts, refuse := 0, true
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutMessage && c.Queue == b.Names.OnDemand && refuse {
				puts++
				return storage.Fault{Refuse: &storage.Error{Status: http.StatusNotFound, Code: "QueueNotFound", Message: "no"}}
			}
			return storage.Fault{}
		})
		work := &rig.Steps{N: 1, Each: time.Minute}
		b.Start("regular_0", job.Kinds{"steps": work}, rig.TakeOnDemand, rig.Changeover(changeover))
		time.Sleep(12 * time.Minute)
		if r := b.Record("near"); puts < 2 || puts > 3 || r.Status != checkpoint.Open || r.Failures != 0 || b.Hidden() != 0 {
			t.Errorf("attempts to move = %d, record %s with %d failures, hidden messages %d; want 2 or 3 in 12m, open, none, none", puts, r.Status,
				r.Failures, b.Hidden())
		}
		refuse = false
		b.WaitDone("near", 15*time.Minute)
		b.WaitFor("message gone", time.Second, func() bool { return b.MessagesLeft() == 0 })
	})
}

// TestSearchCalls: the cost of a search does not grow with the number of workers. A queue
// without messages that may move costs one call for each search, and no claim.
func TestSearchCalls(t *testing.T) {
	proof.Only(t, "it simulates hours")
	for _, row := range proof.Some(t, 1, []struct {
		name           string
		workers, limit int           // of peeks in half an hour
		due            time.Duration // of the job that waits; 0 for none
	}{
		{"one worker", 1, 25, 0},
		{"one worker, a deadline far ahead", 1, 50, 100 * time.Hour},
		{"10 workers", 10, 60, 0},
		{"10 workers, a deadline far ahead", 10, 120, 100 * time.Hour},
	}) {
		t.Run(row.name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.PutDue("waits", "steps", row.due, time.Hour)
				for i := range row.workers {
					b.Start(fmt.Sprintf("regular_%d", i), job.Kinds{"steps": rig.Echo}, rig.TakeOnDemand, rig.Changeover(10*time.Minute), rig.DiscardLog)
				}
				time.Sleep(3 * time.Minute) // all of them know how many they are
				var peeks, claims atomic.Int64
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					switch {
					case c.Queue != b.Names.Queue:
					case c.Operation == "PeekMessages":
						peeks.Add(1)
					default:
						claims.Add(1)
					}
					return storage.Fault{}
				})
				time.Sleep(30 * time.Minute)
				b.Server.OnCall(nil)
				each := int(peeks.Load())
				t.Logf("%d peeks in half an hour", each)
				if each == 0 || each > row.limit || claims.Load() != 0 {
					t.Errorf("peeks in half an hour = %d, other calls %d; want 1 to %d, and none", each, claims.Load(), row.limit)
				}
			})
		})
	}
}
