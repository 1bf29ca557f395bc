package client

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
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

// TestCancelReports: the detail of a failure is its error in words, a refusal keeps its own, and
// the error of report ends the run.
func TestCancelReports(t *testing.T) {
	b := setup(t)
	b.seed(t, "open", StatusOpen)
	b.seedNewer(t, "newer")
	stop := errors.New("stop")
	if err := b.Cancel(t.Context(), []string{"newer"}, CancelOptions{}, func(ActionResult) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Cancel whose report fails = %v, want that error", err)
	}
	refuse(b.server, storage.OpPutBlob, storage.OpSetBlobMetadata)
	got := map[string]ActionResult{}
	_ = b.Cancel(t.Context(), []string{"open", "newer"}, CancelOptions{}, func(r ActionResult) error { // the document is denied too
		got[r.ID] = r
		return nil
	})
	if r := got["open"]; r.Action != Failed || !errors.Is(r.Err, ErrDenied) || r.Detail != r.Err.Error() {
		t.Errorf("cancel of a record that is denied = %+v, want it failed for that", r)
	}
	if r := got["newer"]; r.Action != Refused || !errors.Is(r.Err, ErrNewerVersion) || r.Detail == r.Err.Error() {
		t.Errorf("cancel of a newer record = %+v, want it refused with advice", r)
	}
}

// TestCancelOfUnknownQueues: while it cannot be read how many queues there are, an id without a
// record is barred, since its message may be on another queue.
func TestCancelOfUnknownQueues(t *testing.T) {
	b := setup(t)
	first := true
	b.server.OnCall(func(c storage.Call) storage.Fault {
		if first && c.Operation == storage.OpGetQueueMetadata {
			first = false
			return refused
		}
		return storage.Fault{}
	})
	err := b.Cancel(t.Context(), []string{"a"}, CancelOptions{}, func(r ActionResult) error {
		if r.Action != Barred {
			t.Errorf("cancel = %+v, want it barred", r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCleanSelects: kind, prefix and status narrow what is removed, and the logs of jobs without
// a record are removed only if nothing does.
func TestCleanSelects(t *testing.T) {
	for name, row := range map[string]struct {
		options CleanOptions
		removed int
		logs    int
	}{
		"all":          {CleanOptions{}, 4, 1},
		"done":         {CleanOptions{Status: []Status{StatusDone}}, 2, 0},
		"cancelled":    {CleanOptions{Status: []Status{StatusCancelled}}, 2, 0},
		"both":         {CleanOptions{Status: []Status{StatusDone, StatusCancelled}}, 4, 0},
		"kind":         {CleanOptions{Kind: "k"}, 4, 0},
		"other kind":   {CleanOptions{Kind: "other"}, 0, 0},
		"prefix":       {CleanOptions{Prefix: "a-"}, 2, 0},
		"other prefix": {CleanOptions{Prefix: "c-"}, 0, 0},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			b := setup(t)
			for _, id := range []string{"a-", "b-"} {
				b.seed(t, id+"1", StatusDone)
				b.seed(t, id+"2", StatusCancelled)
			}
			_, write := b.longLog(t, "gone")
			write()
			if _, err := b.stores.Account.Container(b.stores.Names.Records).NewBlobClient(pathOf("gone")).Delete(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(MinCleanAge)
			row.options.OlderThan = MinCleanAge
			r, err := b.Clean(t.Context(), row.options)
			if err != nil || r.Done+r.Cancelled != row.removed || r.Logs != row.logs {
				t.Errorf("Clean = %+v, %v, want %d jobs and %d logs removed", r, err, row.removed, row.logs)
			}
			left := 0
			for _, err := range b.List(t.Context(), Filter{}) {
				if err != nil {
					t.Fatal(err)
				}
				left++
			}
			if left != 4-row.removed {
				t.Errorf("jobs left = %d, want %d", left, 4-row.removed)
			}
		}))
	}
}

// TestCleanNeeds: a dry run needs the right to read, and a clean the right to write.
func TestCleanNeeds(t *testing.T) {
	b := setup(t)
	refuse(b.server, storage.OpListBlobs)
	for dry, want := range map[bool]string{true: "Storage Blob Data Reader", false: "Storage Blob Data Contributor"} {
		_, err := b.Clean(t.Context(), CleanOptions{OlderThan: MinCleanAge, DryRun: dry})
		if denied, ok := errors.AsType[*DeniedError](err); !ok || denied.Role != want {
			t.Errorf("Clean with DryRun %t = %v, want an error with role %s", dry, err, want)
		}
	}
}
