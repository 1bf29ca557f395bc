package evictions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// onDemandMessages returns the messages on the on-demand queue.
func onDemandMessages(b *rig.Bed) []storage.Message { return b.Server.Messages(b.Names.OnDemand) }

// runFor runs a worker until the job has finished that many more steps, and stops it.
func runFor(b *rig.Bed, name string, work *rig.Steps, id string, more int, change ...func(*worker.Config)) *rig.Process {
	b.T.Helper()
	goal := work.Done(id) + more
	p := b.Start(name, job.Kinds{"steps": work}, change...)
	b.WaitFor(fmt.Sprintf("%d steps of %s on %s", goal, id, name), time.Minute, func() bool { return work.Done(id) >= goal })
	p.Stop()
	return p
}

// TestPrioritySwap: a job that was interrupted twice moves to the on-demand queue and
// resumes from its state on a VM of regular priority. After a further interruption
// it stays on that queue.
func TestPrioritySwap(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 40, Each: 300 * time.Millisecond}
		b.Put("long", "steps", "")
		runFor(b, "vm_0", work, "long", 5, rig.MoveAfter(2))
		if spot, moved := b.Server.Messages(b.Names.Queue), onDemandMessages(b); len(spot) != 1 || len(moved) != 0 {
			t.Fatalf("messages after one interruption = %d and %d on demand, want 1 and 0", len(spot), len(moved))
		}
		var seen rig.Counter
		second := runFor(b, "vm_1", work, "long", 5, rig.MoveAfter(2), rig.Observed(&seen))
		moved := onDemandMessages(b)
		if spot := b.Server.Messages(b.Names.Queue); len(spot) != 0 || len(moved) != 1 {
			t.Fatalf("messages after two interruptions = %d and %d on demand, want 0 and 1", len(spot), len(moved))
		}
		e, err := queue.Decode(moved[0].Text)
		if err != nil || e.ID != "long" || !e.Resume || !e.PutBackSince.IsZero() || !moved[0].Visible || !moved[0].Expires.IsZero() {
			t.Errorf("moved message = %+v, %+v, %v, want a visible one that says resume and never expires", e, moved[0], err)
		}
		if r := b.Record("long"); r.Status != checkpoint.Open || r.Interruptions != 2 || !r.HasState() {
			t.Errorf("record = %s, %d interruptions, want open with its state, 2", r.Status, r.Interruptions)
		}
		if n := len(second.Log.Find("job put on the on-demand queue")); n != 1 {
			t.Errorf("log lines about the move = %d, want 1", n)
		}

		if got := seen.Of("ended moved", "ended released"); got["ended moved"] != 1 || got["ended released"] != 0 {
			t.Errorf("observed = %v, want one job moved", got)
		}

		idle := b.Start("vm_2", job.Kinds{"steps": work}, rig.MoveAfter(2))
		time.Sleep(time.Minute)
		idle.Stop()
		if n := work.Done("long"); n > 11 {
			t.Errorf("steps done = %d: a worker took from a queue that it is not configured to take from", n)
		}
		runFor(b, "regular_0", work, "long", 5, rig.TakeOnDemand, rig.MoveAfter(2))
		if after := onDemandMessages(b); len(after) != 1 || after[0].ID != moved[0].ID {
			t.Errorf("messages after an interruption on demand = %+v, want the same one still there", after)
		}
		b.Start("regular_1", job.Kinds{"steps": work}, rig.TakeOnDemand)
		b.WaitDone("long", time.Minute)
		b.WaitFor("message gone", time.Second, func() bool { return b.MessagesLeft() == 0 })
		if n := work.Repeated("long"); n != 0 {
			t.Errorf("steps repeated = %d, want 0", n)
		}
		if r := b.Record("long"); r.Generation != 4 || r.Owner != "regular_1-11112222-0" {
			t.Errorf("record = generation %d by %s, want 4 by the last worker", r.Generation, r.Owner)
		}
	})
}

// TestMovedPayloads: a moved job keeps its payload, be it foreign text, text of the
// largest size, or a payload blob.
func TestMovedPayloads(t *testing.T) {
	for name, text := range map[string]string{
		"foreign": "what is this?", "foreign of 64 KiB": strings.Repeat("x", queue.MaxText), "claim check": "",
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				payload := []byte(text)
				if text != "" {
					b.PutText(text)
				} else {
					payload = bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
					e, err := b.Payloads.Offload(t.Context(), queue.Envelope{ID: "big", Kind: "h", Payload: queue.BytesPayload(payload)})
					if err == nil {
						err = b.Queue.Put(t.Context(), e, 0)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				h := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
					if !bytes.Equal(j.Payload, payload) {
						t.Errorf("payload of %d bytes, want the %d that were put", len(j.Payload), len(payload))
					}
					if state, _, ok := j.Saved(); ok {
						return state, nil
					}
					j.Report(job.Progress{State: []byte("half-way")})
					<-ctx.Done()
					return nil, ctx.Err()
				})
				plain := func(c *worker.Config) { c.DefaultKind = "h" }
				first := b.Start("vm_0", job.Kinds{"h": h}, plain, rig.MoveAfter(1))
				b.WaitFor("the job starts", time.Minute, func() bool { return len(first.Log.Find("job started")) == 1 })
				time.Sleep(time.Second)
				first.Stop()
				moved := onDemandMessages(b)
				if len(moved) != 1 || b.MessagesLeft() != 1 {
					t.Fatalf("messages = %d, %d of them on demand, want one, moved", b.MessagesLeft(), len(moved))
				}
				e, err := queue.Decode(moved[0].Text)
				if err != nil {
					t.Fatal(err)
				}
				b.Start("regular_0", job.Kinds{"h": h}, rig.TakeOnDemand)
				b.WaitDone(e.ID, time.Minute)
				b.WaitFor("message and payload gone", time.Second, func() bool {
					return b.MessagesLeft() == 0 && len(b.Server.Blobs(b.Names.Payloads)) == 0
				})
				if got, err := b.Records.Result(t.Context(), e.ID); err != nil || string(got) != "half-way" {
					t.Errorf("result = %q, %v, want what the first worker saved", got, err)
				}
			})
		})
	}
}

// TestMovedDuplicates: a move leaves the old message, which could not be deleted, and
// two new ones, because a put was retried. With workers on both queues the job has
// one outcome, and no step is repeated.
func TestMovedDuplicates(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		rec := b.AddRecorder()
		work := &rig.Steps{N: 40, Each: 300 * time.Millisecond}
		b.Put("long", "steps", "")
		puts := 0
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutMessage && c.Queue == b.Names.OnDemand {
				puts++
				return storage.Fault{DropReply: puts == 1} // the SDK puts it again
			}
			return storage.Fault{DropRequest: c.Operation == storage.OpDeleteMessage}
		})
		runFor(b, "vm_0", work, "long", 5, rig.MoveAfter(1))
		b.Server.OnCall(nil)
		if spot, moved := len(b.Server.Messages(b.Names.Queue)), len(onDemandMessages(b)); spot != 1 || moved != 2 {
			t.Fatalf("messages = %d and %d on demand, want 1 and 2", spot, moved)
		}
		b.Start("vm_1", job.Kinds{"steps": work}, rig.MoveAfter(1))
		b.Start("regular_0", job.Kinds{"steps": work}, rig.TakeOnDemand)
		b.WaitDone("long", 5*time.Minute)
		b.WaitFor("duplicates gone", 15*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if n := rec.OutcomesOf("long"); n != 1 {
			t.Errorf("commits = %d, want 1", n)
		}
		if n := work.Repeated("long"); n != 0 {
			t.Errorf("steps repeated = %d, want 0", n)
		}
		if r := b.Record("long"); r.Generation > 2 || r.Failures != 0 {
			t.Errorf("record = generation %d, %d failures, want 2 and none", r.Generation, r.Failures)
		}
	})
}

// TestConflictDuringMove: a job whose record an operator reopens at the moment of its
// release is not moved; its message is requeued on the queue that it came from.
func TestConflictDuringMove(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 40, Each: 300 * time.Millisecond}
		b.Put("long", "steps", "")
		p := b.Start("vm_0", job.Kinds{"steps": work}, rig.MoveAfter(1))
		b.WaitFor("a checkpoint", time.Minute, func() bool { return b.Record("long").HasState() })
		time.Sleep(time.Second) // so that the release has a state to save
		var once sync.Once
		same := checkpoint.Delivery{ID: "long", Kind: "steps", PayloadHash: b.Record("long").PayloadHash}
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutBlob && c.Container == b.Names.Records {
				once.Do(func() {
					if _, err := b.Records.Reopen(context.Background(), same, "a person"); err != nil {
						t.Errorf("Reopen = %v, want nil", err)
					}
				})
			}
			return storage.Fault{}
		})
		p.Stop()
		if spot := b.Server.Messages(b.Names.Queue); len(spot) != 1 || len(onDemandMessages(b)) != 0 {
			t.Errorf("messages = %d and %d on demand, want 1 and 0", len(spot), len(onDemandMessages(b)))
		}
		if n := len(p.Log.Find("message deferred")); n != 1 {
			t.Errorf("log lines about the requeued message = %d, want 1", n)
		}
		b.Start("vm_1", job.Kinds{"steps": work}, rig.MoveAfter(1))
		b.WaitDone("long", 2*time.Minute)
	})
}

// clear removes every message of the queue of jobs, as an operator's az storage
// message clear does.
func clearQueue(b *rig.Bed) {
	b.T.Helper()
	if _, err := b.Account(b.Transport("test")).Queue(b.Names.Queue).ClearMessages(b.T.Context(), nil); err != nil {
		b.T.Fatal(err)
	}
}

// wantReplaced checks that the queue of jobs holds one message: a new one of that
// job that says resume and does not expire.
func wantReplaced(b *rig.Bed, id, old string) {
	b.T.Helper()
	messages := b.Server.Messages(b.Names.Queue)
	if len(messages) != 1 {
		b.T.Fatalf("messages = %+v, want one", messages)
	}
	m := messages[0]
	if e, err := queue.Decode(m.Text); err != nil || e.ID != id || !e.Resume || m.ID == old || !m.Expires.IsZero() {
		b.T.Errorf("message = %+v, %+v, %v, want a new one of job %s that says resume and never expires", m, e, err, id)
	}
}

// TestClearedMessageIsReplaced: an operator clears the queue while a job runs. The
// job's next renewal fails, so its worker saves it and puts a new message, and the
// job is done with no step repeated.
func TestClearedMessageIsReplaced(t *testing.T) {
	for name, after := range map[string]time.Duration{"before the first save": time.Second, "after a save": 25 * time.Second} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				rec := b.AddRecorder()
				work := &rig.Steps{N: 200, Each: 300 * time.Millisecond}
				b.Put("long", "steps", "")
				p := b.Start("vm_0", job.Kinds{"steps": work}, rig.MoveAfter(1))
				time.Sleep(after)
				old := b.Server.Messages(b.Names.Queue)[0].ID
				clearQueue(b)
				b.WaitFor("new message", 15*time.Second, func() bool { return b.MessagesLeft() == 1 })
				wantReplaced(b, "long", old)
				if n := len(onDemandMessages(b)); n != 0 {
					t.Errorf("messages on demand = %d, want none: there was no eviction", n)
				}
				if n := len(p.Log.Find("message was removed or has expired; put a new one for the job")); n != 1 {
					t.Errorf("log lines about the new message = %d, want 1", n)
				}
				b.WaitDone("long", 2*time.Minute)
				b.WaitFor("message gone", time.Second, func() bool { return b.MessagesLeft() == 0 })
				if n, again := rec.OutcomesOf("long"), work.Repeated("long"); n != 1 || again != 0 {
					t.Errorf("%d commits, %d steps repeated, want 1 and 0", n, again)
				}
			})
		})
	}
}

// TestClearedMessageIsReplacedInADrain: a worker that finds only at the release of a
// job that its message is gone puts a new one, with a record and without.
func TestClearedMessageIsReplacedInADrain(t *testing.T) {
	for name, after := range map[string]time.Duration{"without a record": 500 * time.Millisecond, "with a record": 12 * time.Second} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				work := &rig.Steps{N: 60, Each: 300 * time.Millisecond}
				b.Put("long", "steps", "")
				p := b.Start("vm_0", job.Kinds{"steps": work})
				time.Sleep(after)
				old := b.Server.Messages(b.Names.Queue)[0].ID
				clearQueue(b)
				p.Stop()
				if n := b.MessagesLeft(); n != 1 {
					t.Fatalf("messages after the release = %d, want 1", n)
				}
				wantReplaced(b, "long", old)
				b.Start("vm_1", job.Kinds{"steps": work})
				b.WaitDone("long", time.Minute)
				if n := work.Repeated("long"); n != 0 {
					t.Errorf("steps repeated = %d, want 0", n)
				}
			})
		})
	}
}

// TestClearedMessagesOfOthersAreNotReplaced: a worker does not replace its message
// when that is gone because another worker has acquired and finished the job.
func TestClearedMessagesOfOthersAreNotReplaced(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 100, Each: 300 * time.Millisecond}
		b.Put("long", "steps", "")
		frozen := b.Start("vm_0", job.Kinds{"steps": work})
		b.WaitFor("a checkpoint", time.Minute, func() bool { return b.Record("long").HasState() })
		thaw := frozen.Link.Hold()
		b.Start("vm_1", job.Kinds{"steps": &rig.Steps{N: 100, Each: 300 * time.Millisecond}})
		b.WaitDone("long", 2*time.Minute)
		b.WaitFor("message gone", time.Second, func() bool { return b.MessagesLeft() == 0 })
		thaw()
		time.Sleep(time.Minute)
		if n := b.MessagesLeft(); n != 0 {
			t.Errorf("messages = %d, want none: the job is done", n)
		}
	})
}

// TestExpiringMessageIsReplaced: a foreign message with a time to live is replaced by a
// message that never expires when its job fails or is interrupted, and when it expires
// while the job runs.
func TestExpiringMessageIsReplaced(t *testing.T) {
	for name, row := range map[string]struct {
		ttl  time.Duration
		fail bool
	}{"interrupted": {time.Hour, false}, "failed": {time.Hour, true}, "expires while the job runs": {15 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				id, failed := b.PutText("what is this?", row.ttl), false
				work := &rig.Steps{N: 150, Each: 300 * time.Millisecond}
				h := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
					if row.fail && !failed {
						failed = true
						return nil, errors.New("not today")
					}
					return work.Run(ctx, j)
				})
				plain := func(c *worker.Config) { c.DefaultKind = "h" }
				first := b.Start("vm_0", job.Kinds{"h": h}, plain)
				if time.Sleep(5 * time.Second); row.ttl > time.Minute && !row.fail {
					first.Stop()
					wantReplaced(b, id, id)
					b.Start("vm_1", job.Kinds{"h": h}, plain)
				} else {
					b.WaitFor("new message", 20*time.Second, func() bool {
						m := b.Server.Messages(b.Names.Queue)
						return len(m) == 1 && m[0].ID != id
					})
					wantReplaced(b, id, id)
				}
				b.WaitDone(id, 2*time.Minute)
				b.WaitFor("message gone", time.Second, func() bool { return b.MessagesLeft() == 0 })
				if n := work.Repeated(id); n != 0 {
					t.Errorf("steps repeated = %d, want 0", n)
				}
			})
		})
	}
}

// drainMany evicts a worker that runs that many jobs, where each storage call takes
// 10 ms, and returns the worker and its log line at the end of the drain.
func drainMany(b *rig.Bed, jobs int, fault func(storage.Call) storage.Fault) (p *rig.Process, drained rig.Line) {
	b.T.Helper()
	slow := storage.Fault{Before: 5 * time.Millisecond, After: 5 * time.Millisecond}
	b.Server.OnCall(func(storage.Call) storage.Fault { return slow })
	work := &rig.Steps{N: 1000, Each: time.Second}
	for i := range jobs {
		b.Put(fmt.Sprintf("job-%d", i), "steps", "")
	}
	p = b.Start("vm_0", job.Kinds{"steps": work}, rig.MoveAfter(1), func(c *worker.Config) { c.Concurrency = jobs })
	last := fmt.Sprintf("job-%d", jobs-1)
	b.WaitFor("all jobs running", time.Minute, func() bool {
		return len(p.Log.Find("job started")) == jobs && work.Done(last) > 2
	})
	b.Server.OnCall(func(c storage.Call) storage.Fault {
		if c.Queue == b.Names.OnDemand {
			return fault(c)
		}
		return slow
	})
	if _, err := b.Metadata.SimulateEviction("vm_0"); err != nil {
		b.T.Fatal(err)
	}
	b.WaitFor("drained", 15*time.Second, func() bool { return len(p.Log.Find("drained")) == 1 })
	return p, p.Log.Find("drained")[0]
}

// TestDrainMoves: a drain that moves every job may take as long as a drain that moves
// none. A drain that cannot move jobs takes at most moveTimeout more and releases all of
// them. No state is left out of a record.
func TestDrainMoves(t *testing.T) {
	many := proof.Times(100, 1000)
	gone := storage.Fault{Refuse: &storage.Error{Status: 404, Code: "QueueNotFound", Message: "no"}}
	for _, row := range []struct {
		name        string
		fault       storage.Fault
		jobs, moved int
		limit       time.Duration
	}{
		{"all are moved", storage.Fault{Before: 5 * time.Millisecond, After: 5 * time.Millisecond}, many, many, 2 * time.Second},
		{"the queue is gone", gone, min(many, 200), 0, 2 * time.Second},
		{"the queue does not answer", storage.Fault{Before: time.Hour}, many, 0, 2*time.Second + rig.MoveTimeout},
	} {
		t.Run(row.name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				p, drained := drainMany(b, row.jobs, func(storage.Call) storage.Fault { return row.fault })
				took := time.Duration(drained["since_notice"].(float64))
				t.Logf("notice to all released: %s", took)
				if took > row.limit {
					t.Errorf("notice to all released = %s, want at most %s", took, row.limit)
				}
				if drained["released"] != float64(row.jobs) || drained["states_left_out"] != 0.0 {
					t.Errorf("drained = %v, want %d released with their states", drained, row.jobs)
				}
				spot, moved := 0, len(onDemandMessages(b))
				for _, m := range b.Server.Messages(b.Names.Queue) {
					if m.Visible {
						spot++
					}
				}
				if moved != row.moved || spot != row.jobs-row.moved {
					t.Errorf("visible messages = %d and %d on demand, want %d and %d", spot, moved, row.jobs-row.moved, row.moved)
				}
				const complaint = "job not moved to another queue; it stays on its own until it is interrupted again"
				if complaints := len(p.Log.Find(complaint)); (row.moved == 0) != (complaints > 0) {
					t.Errorf("log lines about moves that failed = %d for %d moved", complaints, moved)
				}
			})
		})
	}
}

// TestMoveComesAfterStates: jobs are moved or released within the budget even when
// saving their states takes all the time that it may.
func TestMoveComesAfterStates(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 1000, Each: 300 * time.Millisecond}
		b.Put("long", "steps", "")
		p := b.Start("vm_0", job.Kinds{"steps": work}, rig.MoveAfter(1))
		b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("long").HasState() })
		time.Sleep(2 * time.Second) // so that there is more to save
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutBlob && c.Container == b.Names.Records || c.Operation == storage.OpPutMessage {
				return storage.Fault{Before: time.Minute}
			}
			return storage.Fault{}
		})
		asked := time.Now()
		p.Stop()
		if took := time.Since(asked); took > 10*time.Second+rig.HeartbeatWrite {
			t.Errorf("SIGTERM to exit = %s, want within the budget of 10s", took)
		}
		if r := b.Record("long"); r.Status != checkpoint.Open || r.Interruptions != 1 {
			t.Errorf("record = %s, %d interruptions, want open, 1", r.Status, r.Interruptions)
		}
		if m := b.Server.Messages(b.Names.Queue); len(m) != 1 || !m[0].Visible {
			t.Errorf("messages = %+v, want one that is visible", m)
		}
	})
}

// TestWarmUpNeedsOnDemand: a worker that needs the on-demand queue, to move jobs to
// or to take them from, logs that it is missing, and starts once it exists.
func TestWarmUpNeedsOnDemand(t *testing.T) {
	for name, change := range map[string]func(*worker.Config){"to move to": rig.MoveAfter(3), "to take from": rig.TakeOnDemand} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				if _, err := b.Account(b.Server.Transport()).Queue(b.Names.OnDemand).Delete(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, change)
				time.Sleep(10 * time.Second)
				found := p.Log.Find("storage is not ready; no job is lost, trying again")
				if len(found) == 0 || !strings.Contains(fmt.Sprint(found[0]["error"]), b.Names.OnDemand) {
					t.Errorf("log lines = %v, want one that names queue %s", found, b.Names.OnDemand)
				}
				if s := p.Position().State; s != lifecycle.Start {
					t.Errorf("state = %s, want start", s)
				}
				time.Sleep(time.Minute) // a deleted queue's name is free again after 30 s
				if err := b.OnDemand.Create(t.Context()); err != nil {
					t.Fatal(err)
				}
				b.WaitFor("process", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
			})
		})
	}
}
