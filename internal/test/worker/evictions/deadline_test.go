package evictions

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// tenMinutes is a job of ten minutes in steps of five seconds, as deadlines judge it.
func tenMinutes() *rig.Steps { return &rig.Steps{N: 120, Each: 5 * time.Second} }

// TestDeadlineMoves: a job that loses its VM after a minute moves to the on-demand queue if
// it may miss its deadline, with its state, and the record says why. It never moves again.
func TestDeadlineMoves(t *testing.T) {
	for _, row := range proof.Some(t, 3, []struct {
		name          string
		due, estimate time.Duration
		changeover    time.Duration
		moves         bool
	}{
		{"one more interruption cannot be afforded", 11*time.Minute + 30*time.Second, 10 * time.Minute, time.Minute, true},
		{"the fraction shows it without an estimate", 11*time.Minute + 30*time.Second, 0, time.Minute, true},
		{"the fraction shows that the estimate is too low", 11*time.Minute + 30*time.Second, 2 * time.Minute, time.Minute, true},
		{"the fraction shows that the estimate is too high", 20 * time.Minute, 5 * time.Hour, time.Minute, false},
		{"there is time enough", 30 * time.Minute, 10 * time.Minute, time.Minute, false},
		{"the deadline is out of reach", 3 * time.Minute, 10 * time.Minute, time.Minute, false},
		{"the deadline has passed", -time.Minute, 10 * time.Minute, time.Minute, false},
		{"there is no deadline", 0, 10 * time.Minute, time.Minute, false},
		{"no job moves for its deadline", 11*time.Minute + 30*time.Second, 10 * time.Minute, 0, false},
	}) {
		t.Run(row.name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				work := tenMinutes()
				b.PutDue("nightly", "steps", row.due, row.estimate)
				var seen rig.Counter
				first := runFor(b, "vm_0", work, "nightly", 12, rig.Changeover(row.changeover), rig.Observed(&seen))
				moved, r := onDemandMessages(b), b.Record("nightly")
				if got := len(moved) == 1; got != row.moves || b.MessagesLeft() != 1 {
					t.Fatalf("messages = %d, %d of them on demand, want one, moved %t; record %+v", b.MessagesLeft(), len(moved), row.moves, r)
				}
				if r.Status != checkpoint.Open || !r.HasState() || (r.MoveReason != "") != row.moves {
					t.Errorf("record = %s, has a state %t, move reason %q; want open, true, one if it moved", r.Status, r.HasState(), r.MoveReason)
				}
				if r.Estimate != row.estimate || r.Deadline.IsZero() != (row.due == 0) {
					t.Errorf("record = deadline %s, estimate %s, want those of the message", r.Deadline, r.Estimate)
				}
				if got := seen.Of("moved deadline")["moved deadline"]; (got == 1) != row.moves {
					t.Errorf("observed %d moves, want one if it moved", got)
				}
				if !row.moves {
					return
				}
				line := first.Log.Find("job put on the on-demand queue")
				if len(line) != 1 || !strings.Contains(fmt.Sprint(line[0]["reason"]), "work are left") {
					t.Errorf("log lines about the move = %v, want one with its reason", line)
				}
				runFor(b, "regular_0", work, "nightly", 12, rig.TakeOnDemand, rig.Changeover(row.changeover))
				if after := onDemandMessages(b); len(after) != 1 || after[0].ID != moved[0].ID {
					t.Errorf("messages after an interruption on demand = %+v, want the same one still there", after)
				}
				b.Start("regular_1", job.Kinds{"steps": work}, rig.TakeOnDemand)
				b.WaitDone("nightly", 15*time.Minute)
				if n, late := work.Repeated("nightly"), b.Record("nightly").MoveReason == ""; n != 0 || late {
					t.Errorf("%d steps repeated, move reason lost %t; want none, and it is kept", n, late)
				}
			})
		})
	}
}

// TestDeadlineAtClaim: a VM that dies without notice releases nothing, so the next worker
// that claims the job judges it, before its handler is called. A first claim starts the
// job with any deadline.
func TestDeadlineAtClaim(t *testing.T) {
	for _, row := range proof.Some(t, 1, []struct {
		name  string
		due   time.Duration
		moves bool
	}{
		{"at risk", 12 * time.Minute, true},
		{"no time for a move", 10 * time.Minute, false},
		{"time enough", time.Hour, false},
	}) {
		t.Run(row.name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				rec := b.AddRecorder()
				work := tenMinutes()
				b.PutDue("nightly", "steps", row.due, 10*time.Minute)
				first := b.Start("vm_0", job.Kinds{"steps": work}, rig.Changeover(time.Minute))
				b.WaitFor("some steps", 10*time.Minute, func() bool { return work.Done("nightly") >= 24 })
				first.Kill()
				second := b.Start("vm_1", job.Kinds{"steps": work}, rig.Changeover(time.Minute))
				b.WaitFor("claimed", time.Minute, func() bool { return b.Record("nightly").Generation == 2 })
				time.Sleep(time.Second)
				if moved := len(onDemandMessages(b)) == 1; moved != row.moves || b.MessagesLeft() != 1 {
					t.Fatalf("messages = %d, moved %t, want one, moved %t", b.MessagesLeft(), moved, row.moves)
				}
				if started := len(second.Log.Find("job started")) == 1; started == row.moves {
					t.Errorf("handler called = %t, moved %t", started, row.moves)
				}
				b.Start("regular_0", job.Kinds{"steps": work}, rig.TakeOnDemand)
				b.WaitDone("nightly", 15*time.Minute)
				b.WaitFor("message gone", time.Second, func() bool { return b.MessagesLeft() == 0 })
				if n := rec.OutcomesOf("nightly"); n != 1 {
					t.Errorf("commits = %d, want 1", n)
				}
				if r := b.Record("nightly"); row.moves && (r.Generation != 3 || r.Failures != 0 || !r.EndedAt.Before(r.Deadline)) {
					t.Errorf("record = generation %d, %d failures, ended %s, want 3, none, before %s", r.Generation, r.Failures, r.EndedAt, r.Deadline)
				}
			})
		})
	}
}

// TestDeadlineWithoutOnDemandQueue: a job that should move at its claim runs where it is
// while the on-demand queue cannot be reached.
func TestDeadlineWithoutOnDemandQueue(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := tenMinutes()
		b.PutDue("nightly", "steps", 12*time.Minute, 10*time.Minute)
		first := b.Start("vm_0", job.Kinds{"steps": work}, rig.Changeover(time.Minute))
		b.WaitFor("some steps", 10*time.Minute, func() bool { return work.Done("nightly") >= 24 })
		first.Kill()
		puts := 0
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutMessage && c.Queue == b.Names.OnDemand {
				puts++
				return storage.Fault{Refuse: &storage.Error{Status: http.StatusNotFound, Code: "QueueNotFound", Message: "no"}}
			}
			return storage.Fault{}
		})
		b.Start("vm_1", job.Kinds{"steps": work}, rig.Changeover(time.Minute))
		b.WaitDone("nightly", 15*time.Minute)
		if puts != 1 {
			t.Errorf("attempts to move = %d, want 1", puts)
		}
	})
}

// TestDeadlineByTheServicesClock: a worker whose clock is wrong judges like a worker
// whose clock is right.
func TestDeadlineByTheServicesClock(t *testing.T) {
	for _, skew := range []time.Duration{-24 * time.Hour, 0, 24 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.AddRecorder() // faults need its transport
				work := tenMinutes()
				b.PutDue("at-risk", "steps", skew+11*time.Minute+30*time.Second, 10*time.Minute)
				b.PutDue("on-time", "steps", skew+30*time.Minute, 10*time.Minute)
				p := b.StartWithLink("vm_0", job.Kinds{"steps": work}, func(k *rig.Link) {
					k.Skew, k.FaultFor = skew, func(int, *http.Request) rig.RequestFault { return rig.RequestFault{} } // the clock is a fault
				}, rig.Changeover(time.Minute), func(c *worker.Config) { c.Concurrency = 2 })
				b.WaitFor("some steps", 5*time.Minute, func() bool { return work.Done("at-risk") >= 12 && work.Done("on-time") >= 12 })
				p.Stop()
				moved := onDemandMessages(b)
				if len(moved) != 1 || b.MessagesLeft() != 2 || b.Record("at-risk").MoveReason == "" || b.Record("on-time").MoveReason != "" {
					t.Errorf("%d of %d jobs moved, because %q and %q; want the first of two", len(moved), b.MessagesLeft(),
						b.Record("at-risk").MoveReason, b.Record("on-time").MoveReason)
				}
			})
		})
	}
}

// TestChangeoverIsChecked: settings that cannot be meant are refused.
func TestChangeoverIsChecked(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		for name, change := range map[string]func(*worker.Config){
			"changeover of -1s is out of range":   rig.Changeover(-time.Second),
			"changeover of 48h0m0s is out of":     rig.Changeover(48 * time.Hour),
			"there is no on-demand queue to move": func(c *worker.Config) { c.Changeover, c.Stores.OnDemand = time.Minute, nil },
		} {
			home := *b.Stores
			c := worker.Config{Settings: delivery.Settings{
				Stores: &home, Kinds: job.Kinds{"echo": rig.Echo},
			}}
			change(&c)
			if _, err := worker.New(c); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("New = %v, want an error with %q", errors.Unwrap(err), name)
			}
		}
	})
}
