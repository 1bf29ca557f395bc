package client

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// TestWaiting lists the messages at the front of each queue, and none that is hidden.
func TestWaiting(t *testing.T) {
	b := setup(t)
	for _, spec := range []Spec{{ID: "a", Kind: "k"}, {ID: "b", Kind: "k", Group: "g"}, {ID: "later", Kind: "k", Delay: time.Hour},
		{ID: "c", Kind: "k", OnDemand: true}, {ID: "d", Kind: "k", Urgent: true}} {
		if _, err := b.Put(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.stores.Queue.PutUnchanged(t.Context(), "of another program"); err != nil {
		t.Fatal(err)
	}
	got, err := b.Waiting(t.Context())
	jobs, first, onDemand := b.stores.Names.Queue, b.stores.Names.First, b.stores.Names.OnDemand
	want := []Waiting{{Queue: jobs, Place: 1, ID: "a", Kind: "k"}, {Queue: jobs, Place: 2, ID: "b", Kind: "k", Group: "g"},
		{Queue: jobs, Place: 3}, {Queue: first, Place: 1, ID: "d", Kind: "k"}, {Queue: onDemand, Place: 1, ID: "c", Kind: "k"}}
	if len(got) == 5 && len(got[2].ID) == 36 {
		got[2].ID = "" // of the message
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Waiting{}, "Waited")); err != nil || diff != "" {
		t.Errorf("Waiting: %v (-want +got)\n%s", err, diff)
	}
}

// TestPayloadStart finds the payload of a job where it is, and says nothing where none is.
func TestPayloadStart(t *testing.T) {
	b := setup(t)
	long := json.RawMessage(`"` + strings.Repeat("x", 100<<10) + `"`)
	inputs := []job.Input{{Container: "data", Blob: "a.csv"}}
	for _, spec := range []Spec{{ID: "small", Payload: map[string]int{"n": 1}}, {ID: "none"}, {ID: "large", Payload: long},
		{ID: "with-inputs", Payload: long, Inputs: inputs},
		{ID: "urgent", Payload: 7, Urgent: true}} {
		spec.Kind, spec.Group = "k", "g"
		if _, err := b.Put(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	dead := queue.Envelope{ID: "dead", Kind: "k", Payload: queue.BytesPayload([]byte("why"))}
	text, err := dead.Encode()
	if err != nil {
		t.Fatal(err)
	}
	claim, err := b.stores.Records.Create(t.Context(), checkpoint.Delivery{ID: "dead", Kind: "k", PayloadHash: dead.Work()}, "worker")
	if err == nil {
		err = claim.Poison(t.Context(), checkpoint.Snapshot{}, "no")
	}
	if err == nil {
		p := queue.Poison{ID: "dead", Kind: "k", Reason: "no", PoisonedAt: time.Now(), MessageID: "m", Body: text}
		err = b.stores.Poison.PutPoison(t.Context(), p, b.stores.Payloads)
	}
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when, id, start string, size int64, known bool) {
		t.Helper()
		j, err := b.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		got, ok, err := b.PayloadStart(t.Context(), j)
		if err != nil || ok != known || string(got.Start) != start || got.Size != size {
			t.Errorf("%s, PayloadStart of %s = %q of %d, %t, %v; want %q of %d, %t", when, id, got.Start, got.Size, ok, err, start, size, known)
		}
	}
	expect("waiting", "small", `{"n":1}`, 7, true)
	expect("waiting", "urgent", "7", 1, true)
	expect("waiting", "none", "", 0, true)
	expect("waiting", "large", string(long[:512]), int64(len(long)), true)
	expect("waiting", "with-inputs", string(long[:512]), int64(len(long)), true)
	expect("in the poison queue", "dead", "why", 3, true)
	if _, err := b.stores.Queue.Claim(t.Context(), queue.MaxClaim, time.Minute); err != nil {
		t.Fatal(err)
	}
	expect("claimed", "small", "", 0, false)
	expect("claimed", "large", string(long[:512]), int64(len(long)), true)
	done := jobOf(b.seed(t, "done", StatusDone).Record())
	done.WorkSHA256 = strings.Repeat("a", 64)
	b.server.ResetCounts()
	if _, ok, err := b.PayloadStart(t.Context(), done); ok || err != nil || len(b.server.Counts()) > 1 {
		t.Errorf("PayloadStart of a job that is done = %t, %v, with the calls %v; want nothing after one call", ok, err, b.server.Counts())
	}
}

// TestRunAgain: a job that has ended runs again with its payload, inputs and group, where those are
// still known. A job that has not ended, and one whose payload is gone, are left as they are.
func TestRunAgain(t *testing.T) {
	b := setup(t)
	long := json.RawMessage(`"` + strings.Repeat("x", 100<<10) + `"`)
	inputs := []job.Input{{Container: "data", Blob: "a.csv"}}
	for _, spec := range []Spec{{ID: "large", Payload: long, Inputs: inputs}, {ID: "small", Payload: 7}, {ID: "none"}, {ID: "waits"}} {
		spec.Kind, spec.Group = "k", "g"
		if _, err := b.Put(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Cancel(t.Context(), []string{"large", "small", "none"}, CancelOptions{}, func(ActionResult) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := b.stores.Queue.Claim(t.Context(), queue.MaxClaim, time.Minute); err != nil { // by a worker, which drops them
		t.Fatal(err)
	}
	got := map[string]Action{}
	err := b.RunAgain(t.Context(), []string{"large", "small", "none", "waits", "missing"}, func(r ActionResult) error {
		if got[r.ID] = r.Action; (r.Err != nil) != (r.Action != Replayed) {
			t.Errorf("job %s is %s, with the error %v", r.ID, r.Action, r.Err)
		}
		return nil
	})
	want := map[string]Action{"large": Replayed, "small": Refused, "none": Replayed, "waits": Refused, "missing": Failed}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("RunAgain: %v (-want +got)\n%s", err, diff)
	}
	j, err := b.Get(t.Context(), "large")
	p, _, payloadErr := b.PayloadStart(t.Context(), j)
	err = errors.Join(err, payloadErr)
	if err != nil || j.Status != StatusOpen || j.Again == 0 || !slices.Equal(j.Inputs, inputs) || p.Size != int64(len(long)) {
		t.Errorf("the job = %+v, %v, with a payload of %d bytes, want it open with payload and inputs", j, err, p.Size)
	}
}
