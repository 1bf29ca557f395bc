package client

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/queue"
)

// giveUp writes the record and the poison message of a job that was given up.
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

// TestReplayAndPurge: one job continues, one is cancelled, and an id that is not there
// is reported.
func TestReplayAndPurge(t *testing.T) {
	b := setup(t)
	b.giveUp(t, "a")
	b.giveUp(t, "b")
	var got []string
	report := func(r ActionResult) error {
		got = append(got, r.ID+" "+string(r.Action))
		if (r.Err != nil) != (r.Action == NotPoison) {
			t.Errorf("%s %s: error %v", r.ID, r.Action, r.Err)
		}
		return nil
	}
	if err := b.Replay(t.Context(), Selection{IDs: []string{"a", "missing"}}, ReplayOptions{}, report); err != nil {
		t.Fatal(err)
	}
	if err := b.Purge(t.Context(), Selection{All: true}, report); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a replayed", "missing not found", "b purged"}, got); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
	if on := b.messages(t, "spotworker-jobs"); len(on) != 1 || on[0].ID != "a" || !on[0].Resume {
		t.Errorf("messages = %+v, want that of a", on)
	}
	if _, err := b.Result(t.Context(), "b"); !errors.Is(err, ErrCancelled) {
		t.Errorf("Result of b = %v, want ErrCancelled", err)
	}
	own := errors.New("own")
	if err := b.Replay(t.Context(), Selection{IDs: []string{"missing"}}, ReplayOptions{},
		func(ActionResult) error { return own }); !errors.Is(err, own) {
		t.Errorf("Replay = %v, want the error of report", err)
	}
}

// TestCancel: a job that waits or runs is cancelled, and a job that has ended stays as
// it is.
func TestCancel(t *testing.T) {
	b := setup(t)
	b.seed(t, "running", StatusRunning)
	b.seed(t, "done", StatusDone)
	if _, err := b.Put(t.Context(), Spec{ID: "waiting", Kind: "k"}); err != nil {
		t.Fatal(err)
	}
	got := map[string]Action{}
	err := b.Cancel(t.Context(), []string{"running", "done", "waiting", "typo"}, CancelOptions{Reason: "not wanted"},
		func(r ActionResult) error {
			got[r.ID] = r.Action
			if (r.Err != nil) != (r.Action == Unknown) || r.Err != nil && !errors.Is(r.Err, ErrNotFound) {
				t.Errorf("%s is %s: error %v", r.ID, r.Action, r.Err)
			}
			return nil
		})
	if diff := cmp.Diff(map[string]Action{"running": Cancelled, "done": Over, "waiting": Cancelled, "typo": Unknown}, got); diff != "" ||
		err != nil {
		t.Errorf("Cancel: %v (-want +got)\n%s", err, diff)
	}
	if _, err := b.Get(t.Context(), "typo"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get of an id that is not a job's = %v, want no record", err)
	}
	for _, id := range []string{"running", "waiting"} {
		if _, err := b.Result(t.Context(), id); !errors.Is(err, ErrCancelled) {
			t.Errorf("Result of %s = %v, want ErrCancelled", id, err)
		}
	}
}
