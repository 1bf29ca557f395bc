package producer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// TestGroupCalls: a put in a group costs one call more than another put of a generated id,
// and none more for a chosen id. The record exists before the message, and the message tells that to
// workers of older versions.
func TestGroupCalls(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		want map[string]int64
	}{
		"generated": {`{"kind":"k"}`, map[string]int64{storage.OpPutMessage: 1}},
		"chosen":    {`{"kind":"k","id":"a"}`, map[string]int64{storage.OpPutMessage: 1, storage.OpGetBlobProperties: 1}},
		"generated in a group": {`{"kind":"k","group":"night"}`,
			map[string]int64{storage.OpPutMessage: 1, storage.OpPutBlockList: 1}},
		"chosen in a group": {`{"kind":"k","id":"a","group":"night"}`,
			map[string]int64{storage.OpPutMessage: 1, storage.OpPutBlockList: 1}},
	} {
		b := setup(t)
		b.CheckIDs = true
		if sum, err := b.Run(t.Context(), Lines(strings.NewReader(c.line), Spec{})); err != nil || sum.Put != 1 {
			t.Fatalf("%s: Run = %+v, %v", name, sum, err)
		}
		if diff := cmp.Diff(c.want, b.server.Counts()); diff != "" {
			t.Errorf("%s: calls (-want +got)\n%s", name, diff)
		}
		for id, e := range b.envelopes(t) {
			r, err := b.stores.Records.Read(t.Context(), id)
			if e.Group == "" {
				if e.Resume {
					t.Errorf("%s: message %+v, want no resume", name, e)
				}
				continue
			}
			if !e.Resume || err != nil || r.Status != checkpoint.Open || r.Group != "night" || r.PayloadHash != e.Work() {
				t.Errorf("%s: message %+v, record %+v, %v", name, e, r, err)
			}
		}
	}
}

// TestGroupFailedPut: a put whose message is refused leaves the job in its group, waiting, so
// that it is not missed; a second put completes it, and a worker does it once.
func TestGroupFailedPut(t *testing.T) {
	b := setup(t)
	b.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpPutMessage {
			return storage.Fault{Refuse: &protocol.Error{Status: 403, Code: "AuthorizationPermissionMismatch", Message: "no"}}
		}
		return storage.Fault{}
	})
	const line = `{"kind":"k","id":"a","group":"night"}`
	if sum, err := b.Run(t.Context(), Lines(strings.NewReader(line), Spec{})); sum.Failed != 1 {
		t.Fatalf("Run with refused messages = %+v, %v, want a failed job", sum, err)
	}
	if r, err := b.stores.Records.Read(t.Context(), "a"); err != nil || r.Status != checkpoint.Open || r.Group != "night" {
		t.Errorf("record after a failed put = %+v, %v, want it open in its group", r, err)
	}
	b.server.OnCall(nil)
	if sum, err := b.Run(t.Context(), Lines(strings.NewReader(line), Spec{})); err != nil || sum.Put != 1 {
		t.Fatalf("second Run = %+v, %v", sum, err)
	}
	once(t, b.deliver(t, 3), 1)
	if r, err := b.stores.Records.Read(t.Context(), "a"); err != nil || r.Status != checkpoint.Done || r.Group != "night" {
		t.Errorf("record at the end = %+v, %v, want it done in its group", r, err)
	}
	if sum, err := b.Run(t.Context(), Lines(strings.NewReader(line), Spec{})); err != nil || sum.Skipped != 1 {
		t.Errorf("third Run = %+v, %v, want the job skipped", sum, err)
	}
}

// TestGroupConflicts: an id stays in the group of its first put, and a bad name is refused
// before any call.
func TestGroupConflicts(t *testing.T) {
	b := setup(t)
	lines := strings.Join([]string{
		`{"kind":"k","id":"a","group":"night"}`, `{"kind":"k","id":"a","group":"day"}`, `{"kind":"other","id":"a","group":"night"}`,
		`{"kind":"k","id":"b","group":"no/name"}`, `{"kind":"k","id":"c","group":""}`,
	}, "\n")
	b.Parallel = 1
	sum, err := b.Run(t.Context(), Lines(strings.NewReader(lines), Spec{}))
	if err != nil || sum.Put != 1 || sum.Failed != 4 {
		t.Errorf("Run = %+v, %v, want 1 enqueued and 4 failed", sum, err)
	}
	for _, want := range []string{
		"line 2: the job is in another group: its record is in group night, and open", "the id was used for other work",
		`group "no/name": has '/' at byte 2`, "field group is empty",
	} {
		if !strings.Contains(strings.Join(b.failed, "\n"), want) {
			t.Errorf("no failure says %q:\n%s", want, strings.Join(b.failed, "\n"))
		}
	}
}

// TestGroupDryRun: a dry run writes nothing, and finds a job of another group.
func TestGroupDryRun(t *testing.T) {
	b := setup(t)
	if _, err := b.Run(t.Context(), Lines(strings.NewReader(`{"kind":"k","id":"a","group":"night"}`), Spec{})); err != nil {
		t.Fatal(err)
	}
	b.server.ResetCounts()
	b.DryRun, b.CheckIDs = true, true
	lines := `{"kind":"k","id":"a"}` + "\n" + `{"kind":"k","id":"b"}` + "\n" + `{"kind":"k"}`
	sum, err := b.Run(t.Context(), Lines(strings.NewReader(lines), Spec{Group: "day"}))
	if err != nil || sum.Put != 2 || sum.Failed != 1 {
		t.Errorf("dry run = %+v, %v, want 2 to enqueue and 1 failed: %q", sum, err, b.failed)
	}
	if got, want := b.server.Counts(), map[string]int64{storage.OpGetBlobProperties: 2}; !cmp.Equal(got, want) {
		t.Errorf("dry run took the calls %v, want %v", got, want)
	}
}

// TestGroupTakeOver: a job of a group whose worker is known to be dead is reopened, and stays
// in its group.
func TestGroupTakeOver(t *testing.T) {
	b := setup(t)
	spec := Spec{ID: "a", Kind: "k", Group: "night"}
	d := checkpoint.Delivery{ID: "a", Kind: "k", PayloadHash: spec.Payload.Hash(), Group: "night"}
	if _, err := b.stores.Records.Enlist(t.Context(), d, "p"); err != nil {
		t.Fatal(err)
	}
	found, err := b.stores.Records.Read(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	d.MessageID = "dead"
	if _, err := b.stores.Records.Acquire(t.Context(), d, found, "worker-1"); err != nil {
		t.Fatal(err)
	}
	b.TakeOver = true
	const line = `{"kind":"k","id":"a","group":"night"}`
	if sum, err := b.Run(t.Context(), Lines(strings.NewReader(line), Spec{})); err != nil || sum.Put != 1 {
		t.Fatalf("Run = %+v, %v", sum, err)
	}
	if r, err := b.stores.Records.Read(t.Context(), "a"); err != nil || r.Status != checkpoint.Open || r.Group != "night" {
		t.Errorf("record = %+v, %v, want it open in its group", r, err)
	}
	once(t, b.deliver(t, 2), 1)
}
