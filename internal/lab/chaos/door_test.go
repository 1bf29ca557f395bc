package chaos

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// hall is a storage account with a door to it.
type hall struct {
	server *storage.Server
	names  azure.Names
	tally  *tally
	door   *door
	queue  *queue.Queue // through the door

	connectionString string // past it
}

func newHall(t *testing.T) *hall {
	t.Helper()
	names, err := azure.NamesFor("test", "")
	if err != nil {
		t.Fatal(err)
	}
	h := &hall{server: storage.New(storage.Options{}), names: names, tally: newTally(30 * time.Second)}
	connectionString, err := h.server.Listen(storage.Addresses{})
	if err != nil {
		t.Fatal(err)
	}
	h.connectionString = connectionString
	to := upstream()
	if h.door, err = openDoor("vm", connectionString, names, h.tally, to, nil); err != nil {
		t.Fatal(err)
	}
	account, err := azure.Connect(azure.Config{ConnectionString: h.door.connectionString})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.door.close()
		to.CloseIdleConnections()
		if err := h.server.Close(); err != nil {
			t.Error(err)
		}
	})
	h.queue = queue.New(account.Queue(names.Queue), names.Queue)
	if err := h.queue.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestDoorKnowsWhatIsInHand: what was claimed is in a VM's hands until it was
// released, deleted, or somebody else got it.
func TestDoorKnowsWhatIsInHand(t *testing.T) {
	h := newHall(t)
	h.tally.expect("a", payloadOf(false), false, 1)
	for range 3 {
		if err := h.queue.Put(t.Context(), queue.Envelope{ID: "a", Kind: stepsKind}, 0); err != nil {
			t.Fatal(err)
		}
	}
	leases, err := h.queue.Claim(t.Context(), 3, 30*time.Second)
	if err != nil || len(leases) != 3 || h.tally.inHand("vm") != 3 {
		t.Fatalf("Claim = %d messages, %v, of which %d are in hand, want 3", len(leases), err, h.tally.inHand("vm"))
	}
	if err := leases[0].Renew(t.Context(), 30*time.Second); err != nil || h.tally.inHand("vm") != 3 {
		t.Errorf("after a renewal (%v) %d are in hand, want 3", err, h.tally.inHand("vm"))
	}
	if err := leases[0].Release(t.Context(), 0); err != nil || h.tally.inHand("vm") != 2 {
		t.Errorf("after a release (%v) %d are in hand, want 2", err, h.tally.inHand("vm"))
	}
	if err := leases[1].Complete(t.Context()); err != nil || h.tally.inHand("vm") != 1 {
		t.Errorf("after a deletion (%v) %d are in hand, want 1", err, h.tally.inHand("vm"))
	}
	if n := len(h.tally.jobs["a"].deletions); n != 1 {
		t.Errorf("deletions of the job's messages = %d, want 1", n)
	}
	h.tally.handedOut(h.tally.vm("other"), leases[2].ID, true, time.Now())
	if h.tally.inHand("vm") != 0 || h.tally.inHand("other") != 1 {
		t.Errorf("handed to another: %d and %d in hand, want 0 and 1", h.tally.inHand("vm"), h.tally.inHand("other"))
	}
	if n := h.tally.killed("other"); n != 1 || h.tally.jobs["a"].kills != 1 || h.tally.inHandOnce != 1 {
		t.Errorf("jobs in hand at a kill = %d (%d kills of the job), want 1", n, h.tally.jobs["a"].kills)
	}
}

// Each fault has the effect of the call, or takes it away; the caller gets no
// reply in time, and knows at once only where the connection is reset.
func TestDoorFaults(t *testing.T) {
	for f := range faults {
		t.Run(f.String(), func(t *testing.T) {
			h := newHall(t)
			var sprung atomic.Int64
			remove := h.door.set(&trap{calls: 100, matches: everything, fault: f, delay: time.Second, sprung: func() { sprung.Add(1) }})
			began := time.Now()
			if err := putOnce(t.Context(), h); err == nil {
				t.Error("a call with a fault = nil, want an error")
			}
			if f > resetReply && time.Since(began) < putLimit {
				t.Error("the caller had an answer, or a reset, before its time was over")
			}
			messages := func() int { return len(h.server.Messages(h.names.Queue)) }
			if f == delayRequest && messages() > 0 {
				t.Error("a delayed request had its effect at once")
			}
			remove()
			for wait := time.Now(); f == delayRequest && messages() == 0 && time.Since(wait) < 10*time.Second; {
				time.Sleep(10 * time.Millisecond) // its caller gave up long ago
			}
			if n := messages(); (n > 0) != f.effect() {
				t.Errorf("messages put by it = %d, want any: %t", n, f.effect())
			}
			if err := putOnce(t.Context(), h); err != nil {
				t.Errorf("the next call = %v, want nil", err)
			}
			if sprung.Load() == 0 {
				t.Error("the trap did not spring")
			}
		})
	}
}

// A door that is shut lets nothing through.
func TestDoorIsShut(t *testing.T) {
	h := newHall(t)
	h.door.setShut(true)
	if err := putOnce(t.Context(), h); err == nil || len(h.server.Messages(h.names.Queue)) > 0 {
		t.Errorf("a call that was cut = %v, with %d messages put, want an error and none", err, len(h.server.Messages(h.names.Queue)))
	}
	h.door.setShut(false)
	if err := putOnce(t.Context(), h); err != nil {
		t.Errorf("the next call = %v, want nil", err)
	}
}

// When the run is over nothing is held back any more, and what was has no effect.
func TestRunEndsDelays(t *testing.T) {
	h := newHall(t)
	over := make(chan struct{})
	h.door.over = over
	h.door.set(&trap{calls: 100, matches: everything, fault: delayRequest, delay: time.Hour})
	if err := putOnce(t.Context(), h); err == nil {
		t.Error("a delayed call = nil, want an error")
	}
	close(over)
	h.door.set(&trap{calls: 100, matches: everything, fault: swallowReply})
	h.door.close()
	if n := len(h.server.Messages(h.names.Queue)); n > 0 {
		t.Errorf("messages put by a call that was on its way = %d, want 0", n)
	}
}

// putLimit is less than any delay of these tests, and more than a call takes.
const putLimit = 400 * time.Millisecond

// putOnce puts a message and does not wait for a second try.
func putOnce(ctx context.Context, h *hall) error {
	ctx, cancel := context.WithTimeout(ctx, putLimit)
	defer cancel()
	return h.queue.Put(ctx, queue.Envelope{ID: "a", Kind: stepsKind}, 0)
}

// Trap and removal are exclusive: one that was taken away does not spring.
func TestTrapIsTakenAway(t *testing.T) {
	d := &door{}
	remove := d.set(&trap{calls: 1, matches: everything})
	if !remove() || remove() {
		t.Error("remove: want true once, then false")
	}
	if got, _ := d.step(call{}); got != nil {
		t.Error("a trap that was taken away sprang")
	}
	d.set(&trap{calls: 2, matches: everything})
	for want := range 3 {
		if got, _ := d.step(call{}); (got != nil) != (want < 2) {
			t.Errorf("call %d in a trap for two: %v", want, got)
		}
	}
}

func everything(call) bool { return true }
