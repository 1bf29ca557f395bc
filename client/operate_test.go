package client

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

// giveUp writes the record and the poison message of a job that was dead-lettered.
func (b *rig) giveUp(t *testing.T, id string) {
	t.Helper()
	b.seed(t, id, StatusPoison)
	if err := b.stores.Queue.Put(t.Context(), queue.Envelope{ID: id, Kind: "k"}, 0); err != nil {
		t.Fatal(err)
	}
	leases, err := b.stores.Queue.Claim(t.Context(), 1, time.Minute)
	if err != nil || len(leases) != 1 {
		t.Fatal(len(leases), err)
	}
	p := queue.Poison{ID: id, Kind: "k", MessageID: leases[0].ID, Reason: "no such frame", PoisonedAt: time.Now(), Worker: "worker-1",
		Origin: b.stores.Names.Queue, Body: leases[0].Text()}
	if err := b.stores.Poison.PutPoison(t.Context(), p, b.stores.Payloads); err != nil {
		t.Fatal(err)
	}
	if err := leases[0].Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
}
