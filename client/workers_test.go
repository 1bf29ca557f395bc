package client

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		noon := time.Now().UTC().Truncate(time.Second)
		p := presence.Presence{
			Worker: "vm_0-1-0", Machine: presence.Machine{VM: "vm_0"}, State: "process", StartedAt: noon, At: noon,
			Software:  presence.Software{Program: "1.2.3"},
			TakesFrom: []string{"spotworker-jobs"}, Kinds: []string{"digest"}, Asked: presence.AskedPause, Jobs: []string{"a", "b"},
			LastEvent: presence.Event{ID: "E-1", Type: "Preempt", Status: "Scheduled", Action: "hand over", SeenAt: noon},
			LastDrain: presence.Drain{Reason: "evicted", EndedAt: noon, Took: time.Second, Budget: 10 * time.Second, Jobs: 2, Released: 2},
		}
		if err := b.stores.Workers.Write(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want := Worker{
			Name: "vm_0-1-0", VM: "vm_0", State: "process", Version: "1.2.3", ReadsVersion: 2, StartedAt: noon, Age: time.Minute,
			Queues: []string{"spotworker-jobs"}, Kinds: []string{"digest"}, Asked: "pause", Jobs: 2,
			LastEvent: &Event{ID: "E-1", Type: "Preempt", Status: "Scheduled", Action: "hand over", SeenAt: noon},
			LastDrain: &Drain{Reason: "evicted", EndedAt: noon, Took: time.Second, Budget: 10 * time.Second, Jobs: 2, Released: 2},
		}
		all, err := b.Workers(t.Context())
		if diff := cmp.Diff([]Worker{want}, all); diff != "" || err != nil {
			t.Errorf("Workers: %v (-want +got)\n%s", err, diff)
		}
		one, err := b.Worker(t.Context(), "vm_0-1-0")
		want.JobIDs = []string{"a", "b"}
		if diff := cmp.Diff(want, one); diff != "" || err != nil {
			t.Errorf("Worker: %v (-want +got)\n%s", err, diff)
		}
		if _, err := b.Worker(t.Context(), "vm_1-1-0"); !errors.Is(err, ErrNoWorker) {
			t.Errorf("Worker of another name = %v, want ErrNoWorker", err)
		}
	})
}

func TestQueues(t *testing.T) {
	b := setup(t)
	for range 3 {
		if err := b.stores.Queue.Put(t.Context(), queue.Envelope{ID: "a", Kind: "k"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.stores.OnDemand.Put(t.Context(), queue.Envelope{ID: "b", Kind: "k"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	b.server.ResetCounts()
	got, err := b.Queues(t.Context())
	want := Queues{
		Jobs: Queue{"spotworker-jobs", true, 3}, OnDemand: Queue{"spotworker-jobs-ondemand", true, 1},
		Poison: Queue{"spotworker-jobs-poison", true, 0},
		Shards: []Queue{{"spotworker-jobs", true, 3}}, PutOver: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Queues: %v (-want +got)\n%s", err, diff)
	}
	if n := b.server.Counts()[storage.OpGetQueueMetadata]; n != 3 {
		t.Errorf("%d calls, want 3", n)
	}
	bare := setupBare(t, Options{Prefix: "none"})
	if got, err := bare.Queues(t.Context()); err != nil || got.Jobs.Exists || got.Jobs.Name != "none-jobs" {
		t.Errorf("Queues before they were created = %+v, %v, want that they do not exist", got, err)
	}
}
