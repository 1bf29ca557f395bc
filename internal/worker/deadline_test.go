package worker

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// tenMinutes is a job of ten minutes in steps of five seconds, as deadlines judge it.
func tenMinutes() *steps { return &steps{n: 120, each: 5 * time.Second} }

// changeover makes a worker move jobs that may miss their deadlines.
func changeover(d time.Duration) func(*Config) { return func(c *Config) { c.Changeover = d } }

// putDue enqueues a job with a deadline after due from now; 0 is none.
func (b *testbed) putDue(id, kind string, due, estimate time.Duration) {
	b.t.Helper()
	e := queue.Envelope{ID: id, Kind: kind, EnqueuedAt: time.Now(), Estimate: estimate}
	if due != 0 {
		e.Deadline = time.Now().Add(due)
	}
	if err := b.queue.Put(b.t.Context(), e, 0); err != nil {
		b.t.Fatal(err)
	}
}

// TestDeadlineMoves: a job that loses its VM after a minute moves to the on-demand queue if
// it may miss its deadline, with its state, and the record says why. It never moves again.
func TestDeadlineMoves(t *testing.T) {
	for _, row := range []struct {
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
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *testbed) {
				work := tenMinutes()
				b.putDue("nightly", "steps", row.due, row.estimate)
				var seen counter
				first := b.runFor("vm_0", work, "nightly", 12, changeover(row.changeover), func(c *Config) { c.Observer = &seen })
				moved, r := b.onDemandMessages(), b.record("nightly")
				if got := len(moved) == 1; got != row.moves || b.messagesLeft() != 1 {
					t.Fatalf("messages = %d, %d of them on demand, want one, moved %t; record %+v", b.messagesLeft(), len(moved), row.moves, r)
				}
				if r.Status != checkpoint.Open || !r.HasState() || (r.MoveReason != "") != row.moves {
					t.Errorf("record = %s, has a state %t, move reason %q; want open, true, one if it moved", r.Status, r.HasState(), r.MoveReason)
				}
				if r.Estimate != row.estimate || r.Deadline.IsZero() != (row.due == 0) {
					t.Errorf("record = deadline %s, estimate %s, want those of the message", r.Deadline, r.Estimate)
				}
				if got := seen.of("moved deadline")["moved deadline"]; (got == 1) != row.moves {
					t.Errorf("observed %d moves, want one if it moved", got)
				}
				if !row.moves {
					return
				}
				line := first.log.find("job put on the on-demand queue")
				if len(line) != 1 || !strings.Contains(fmt.Sprint(line[0]["reason"]), "work are left") {
					t.Errorf("log lines about the move = %v, want one with its reason", line)
				}
				b.runFor("regular_0", work, "nightly", 12, takeOnDemand, changeover(row.changeover))
				if after := b.onDemandMessages(); len(after) != 1 || after[0].ID != moved[0].ID {
					t.Errorf("messages after an interruption on demand = %+v, want the same one still there", after)
				}
				b.start("regular_1", job.Kinds{"steps": work}, takeOnDemand)
				b.waitDone("nightly", 15*time.Minute)
				if n, late := work.repeated("nightly"), b.record("nightly").MoveReason == ""; n != 0 || late {
					t.Errorf("%d steps repeated, move reason lost %t; want none, and it is kept", n, late)
				}
			})
		})
	}
}

// TestDeadlineAtClaim: a VM that dies without notice releases nothing, so the next worker
// that claims the job judges it, before its handler is called. A first claim starts the job
// whatever its deadline is.
func TestDeadlineAtClaim(t *testing.T) {
	for _, row := range []struct {
		name  string
		due   time.Duration
		moves bool
	}{
		{"at risk", 12 * time.Minute, true},
		{"no time for a move", 10 * time.Minute, false},
		{"time enough", time.Hour, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *testbed) {
				rec := b.addRecorder()
				work := tenMinutes()
				b.putDue("nightly", "steps", row.due, 10*time.Minute)
				first := b.start("vm_0", job.Kinds{"steps": work}, changeover(time.Minute))
				b.waitFor("some steps", 10*time.Minute, func() bool { return work.done("nightly") >= 24 })
				first.kill()
				second := b.start("vm_1", job.Kinds{"steps": work}, changeover(time.Minute))
				b.waitFor("claimed", time.Minute, func() bool { return b.record("nightly").Generation == 2 })
				time.Sleep(time.Second)
				if moved := len(b.onDemandMessages()) == 1; moved != row.moves || b.messagesLeft() != 1 {
					t.Fatalf("messages = %d, moved %t, want one, moved %t", b.messagesLeft(), moved, row.moves)
				}
				if started := len(second.log.find("job started")) == 1; started == row.moves {
					t.Errorf("handler called = %t, moved %t", started, row.moves)
				}
				b.start("regular_0", job.Kinds{"steps": work}, takeOnDemand)
				b.waitDone("nightly", 15*time.Minute)
				b.waitFor("message gone", time.Second, func() bool { return b.messagesLeft() == 0 })
				if n := rec.outcomesOf("nightly"); n != 1 {
					t.Errorf("commits = %d, want 1", n)
				}
				if r := b.record("nightly"); row.moves && (r.Generation != 3 || r.Failures != 0 || !r.EndedAt.Before(r.Deadline)) {
					t.Errorf("record = generation %d, %d failures, ended %s, want 3, none, before %s", r.Generation, r.Failures, r.EndedAt, r.Deadline)
				}
			})
		})
	}
}

// TestDeadlineWithoutOnDemandQueue: a job that should move at its claim runs where it is
// while the on-demand queue cannot be reached.
func TestDeadlineWithoutOnDemandQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		work := tenMinutes()
		b.putDue("nightly", "steps", 12*time.Minute, 10*time.Minute)
		first := b.start("vm_0", job.Kinds{"steps": work}, changeover(time.Minute))
		b.waitFor("some steps", 10*time.Minute, func() bool { return work.done("nightly") >= 24 })
		first.kill()
		puts := 0
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutMessage && c.Queue == b.names.OnDemand {
				puts++
				return storage.Fault{Refuse: &storage.Error{Status: http.StatusNotFound, Code: "QueueNotFound", Message: "no"}}
			}
			return storage.Fault{}
		})
		b.start("vm_1", job.Kinds{"steps": work}, changeover(time.Minute))
		b.waitDone("nightly", 15*time.Minute)
		if puts != 1 {
			t.Errorf("attempts to move = %d, want 1", puts)
		}
	})
}

// TestDeadlineByTheServicesClock: a worker whose clock is wrong judges as one whose clock is
// right.
func TestDeadlineByTheServicesClock(t *testing.T) {
	for _, skew := range []time.Duration{-24 * time.Hour, 0, 24 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *testbed) {
				b.addRecorder() // faults need its transport
				work := tenMinutes()
				b.putDue("at-risk", "steps", skew+11*time.Minute+30*time.Second, 10*time.Minute)
				b.putDue("on-time", "steps", skew+30*time.Minute, 10*time.Minute)
				p := b.startWithLink("vm_0", job.Kinds{"steps": work}, func(k *link) {
					k.skew, k.faultFor = skew, func(int, *http.Request) requestFault { return requestFault{} } // the clock is a fault
				}, changeover(time.Minute), func(c *Config) { c.Concurrency = 2 })
				b.waitFor("some steps", 5*time.Minute, func() bool { return work.done("at-risk") >= 12 && work.done("on-time") >= 12 })
				p.stop()
				moved := b.onDemandMessages()
				if len(moved) != 1 || b.messagesLeft() != 2 || b.record("at-risk").MoveReason == "" || b.record("on-time").MoveReason != "" {
					t.Errorf("%d of %d jobs moved, because %q and %q; want the first of two", len(moved), b.messagesLeft(), b.record("at-risk").MoveReason, b.record("on-time").MoveReason)
				}
			})
		})
	}
}

// TestChangeoverIsChecked: settings that cannot be meant are refused.
func TestChangeoverIsChecked(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		for name, change := range map[string]func(*Config){
			"changeover of -1s is out of range":   changeover(-time.Second),
			"changeover of 48h0m0s is out of":     changeover(48 * time.Hour),
			"there is no on-demand queue to move": func(c *Config) { c.Changeover, c.OnDemand = time.Minute, nil },
		} {
			c := Config{
				Queue: b.queue, OnDemand: b.onDemand, Poison: b.queue, Payloads: b.payloads, Records: b.records, Workers: b.workers,
				Kinds: job.Kinds{"echo": echo},
			}
			change(&c)
			if _, err := New(c); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("New = %v, want an error with %q", errors.Unwrap(err), name)
			}
		}
	})
}
