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
	h := &hall{server: storage.New(storage.Options{}), names: names, tally: newTally()}
	connectionString, err := h.server.Listen(storage.Addresses{})
	if err != nil {
		t.Fatal(err)
	}
	h.connectionString = connectionString
	to := upstream()
	if h.door, err = openDoor("vm", connectionString, names, h.tally, to); err != nil {
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
	h.tally.expect("a", payloadOf(false), 1)
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
	h.tally.handedOut("other", claimedMessage{id: leases[2].ID, job: "a"})
	if h.tally.inHand("vm") != 0 || h.tally.inHand("other") != 1 {
		t.Errorf("handed to another: %d and %d in hand, want 0 and 1", h.tally.inHand("vm"), h.tally.inHand("other"))
	}
	if n := h.tally.killed("other"); n != 1 || h.tally.jobs["a"].kills != 1 || h.tally.inHandOnce != 1 {
		t.Errorf("jobs in hand at a kill = %d (%d kills of the job), want 1", n, h.tally.jobs["a"].kills)
	}
}

// A trap takes the effect of a call away, or its reply; a door that is shut lets
// nothing through.
func TestDoorCuts(t *testing.T) {
	for name, row := range map[string]struct {
		effect, shut bool
	}{
		"requests lost": {false, false},
		"replies lost":  {true, false},
		"shut":          {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHall(t)
			var sprung atomic.Int64
			remove := func() bool { h.door.setShut(false); return true }
			if row.shut {
				h.door.setShut(true)
			} else {
				remove = h.door.set(&trap{calls: 100, matches: everything, effect: row.effect, sprung: func() { sprung.Add(1) }})
			}
			if err := putOnce(t.Context(), h); err == nil {
				t.Error("a call that was cut = nil, want an error")
			}
			if n := len(h.server.Messages(h.names.Queue)); (n > 0) != row.effect {
				t.Errorf("messages put by it = %d, want any: %t", n, row.effect)
			}
			remove()
			if err := putOnce(t.Context(), h); err != nil {
				t.Errorf("the next call = %v, want nil", err)
			}
			if !row.shut && sprung.Load() == 0 {
				t.Error("the trap did not spring")
			}
		})
	}
}

// putOnce puts a message and does not wait for a second try.
func putOnce(ctx context.Context, h *hall) error {
	ctx, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
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
