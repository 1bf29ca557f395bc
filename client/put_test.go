package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// messages decodes what lies on a queue.
func (b *rig) messages(t *testing.T, name string) (all []queue.Envelope) {
	t.Helper()
	for _, m := range b.server.Messages(name) {
		e, err := queue.Decode(m.Text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func TestPut(t *testing.T) {
	b := setup(t)
	deadline := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	id, err := b.Put(t.Context(), Spec{
		Kind: "thumbnail", Payload: struct{ URL string }{"a&b"}, Deadline: deadline, MaxRun: time.Hour, MaxSilence: time.Minute,
		Estimate: 2 * time.Hour, OnDemand: true,
	})
	if err != nil || len(id) != 36 {
		t.Fatalf("Put = %q, %v, want a new id", id, err)
	}
	if n := b.server.Counts(); n[storage.OpPutMessage] != 1 || len(n) != 1 {
		t.Errorf("calls = %v, want one put", n)
	}
	on := b.messages(t, "spotworker-jobs-ondemand")
	if len(on) != 1 || len(b.messages(t, "spotworker-jobs")) != 0 {
		t.Fatalf("messages on demand = %+v, want the job alone", on)
	}
	e := on[0]
	payload, _ := e.Payload.Inline()
	if e.ID != id || e.Kind != "thumbnail" || string(payload) != `{"URL":"a&b"}` && string(payload) != `{"URL":"a\u0026b"}` ||
		!e.Deadline.Equal(deadline) || e.MaxRun != time.Hour || e.MaxSilence != time.Minute || e.Estimate != 2*time.Hour || e.ChosenID {
		t.Errorf("message = %+v, want the job", e)
	}
	if _, err := b.Put(t.Context(), Spec{Kind: "thumbnail", Urgent: true}); err != nil || len(b.messages(t, "spotworker-jobs-first")) != 1 {
		t.Errorf("Put of an urgent job = %v, want it on its queue", err)
	}
	if err := (Spec{Kind: "thumbnail", Urgent: true, OnDemand: true}).Validate(); err == nil {
		t.Error("Validate of an urgent job on demand = nil, want an error")
	}
}

// TestPutAgain: an id has one outcome, and the work it stands for.
func TestPutAgain(t *testing.T) {
	b := setup(t)
	for _, status := range []Status{StatusOpen, StatusRunning, StatusDone, StatusPoison, StatusCancelled} {
		b.seed(t, string(status), status)
		id, err := b.Put(t.Context(), Spec{ID: string(status), Kind: "k"})
		if err != nil || id != string(status) {
			t.Errorf("Put of a job that is %s = %q, %v, want no error", status, id, err)
		}
	}
	var ids []string
	for _, e := range b.messages(t, "spotworker-jobs") {
		ids = append(ids, e.ID)
	}
	if diff := cmp.Diff([]string{"open", "running"}, ids); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if _, err := b.Put(t.Context(), Spec{ID: "done", Kind: "k", Payload: 1}); !errors.Is(err, ErrOtherWork) {
		t.Errorf("Put of other work = %v, want ErrOtherWork", err)
	}
	b.seedNewer(t, "newer")
	if _, err := b.Put(t.Context(), Spec{ID: "newer", Kind: "k"}); !errors.Is(err, ErrNewerVersion) {
		t.Errorf("Put over a newer record = %v, want ErrNewerVersion", err)
	}
}

// TestPayloads: bytes stay as they are, JSON is compact, and a payload that does not
// fit into a message goes into a blob.
func TestPayloads(t *testing.T) {
	b := setup(t)
	for want, payload := range map[string]any{
		"":         nil,
		"{ }":      []byte("{ }"),
		"[1,2]":    json.RawMessage("[1, 2]"),
		`"text"`:   "text",
		`{"n":1}`:  map[string]int{"n": 1},
		"\x00\xff": []byte("\x00\xff"),
		"null":     json.RawMessage("null"),
	} {
		id, err := b.Put(t.Context(), Spec{Kind: "k", Payload: payload})
		if err != nil {
			t.Fatal(err)
		}
		all := b.messages(t, "spotworker-jobs")
		e := all[len(all)-1]
		if got, ok := e.Payload.Inline(); e.ID != id || !ok || string(got) != want {
			t.Errorf("payload of %#v = %q, want %q", payload, got, want)
		}
	}
	if _, err := b.Put(t.Context(), Spec{Kind: "k", Payload: []byte(big("x", 100<<10))}); err != nil ||
		len(b.server.Blobs("spotworker-payloads")) != 1 {
		t.Errorf("Put of 100 KiB = %v, with %d blobs, want one", err, len(b.server.Blobs("spotworker-payloads")))
	}
	for name, spec := range map[string]Spec{
		"channel": {Kind: "k", Payload: make(chan int)}, "bad JSON": {Kind: "k", Payload: json.RawMessage("{")}, "no kind": {},
		"bad id": {Kind: "k", ID: "a/b"}, "delay": {Kind: "k", Delay: -1}, "too much": {Kind: "k", Payload: []byte(big("x", 65<<20))},
	} {
		b.server.ResetCounts()
		if _, err := b.Put(t.Context(), spec); err == nil || len(b.server.Counts()) != 0 {
			t.Errorf("%s: Put = %v after %v, want an error before any call", name, err, b.server.Counts())
		}
		if err := spec.Validate(); err == nil {
			t.Errorf("%s: Validate finds nothing", name)
		}
	}
}

func big(s string, n int) string { return strings.Repeat(s, n) }

// numbered yields n jobs, with ids of their own if prefix is not empty.
func numbered(n int, prefix string) iter.Seq2[Spec, error] {
	return func(yield func(Spec, error) bool) {
		for i := range n {
			spec := Spec{Kind: "k", Payload: i, Where: fmt.Sprintf("job %d", i)}
			if prefix != "" {
				spec.ID = fmt.Sprintf("%s%d", prefix, i)
			}
			if !yield(spec, nil) {
				return
			}
		}
	}
}

// TestPutManyCalls counts the calls for a job: one to put it, and one to read the
// record of an id that may have been used before. After 64 reads, and those under way, a listing
// replaces the rest. How many queues there are is read
// once.
func TestPutManyCalls(t *testing.T) {
	for name, row := range map[string]struct {
		prefix  string
		options PutOptions
		want    map[string]int64
	}{
		"new ids": {"", PutOptions{}, map[string]int64{storage.OpPutMessage: 500, storage.OpGetQueueMetadata: 1}},
		"ids": {"job-", PutOptions{}, map[string]int64{storage.OpPutMessage: 500, storage.OpGetBlobProperties: 96,
			storage.OpListBlobs: 1, storage.OpGetQueueMetadata: 1}},
		"no check":      {"job-", PutOptions{NoCheck: true}, map[string]int64{storage.OpPutMessage: 500, storage.OpGetQueueMetadata: 1}},
		"dry run":       {"", PutOptions{DryRun: true}, map[string]int64{}},
		"known by list": {"job-", PutOptions{Skip: func(string) (Status, bool) { return StatusDone, true }}, map[string]int64{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				b.server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: 16 * time.Millisecond} })
				began := time.Now()
				reported := 0
				row.options.Report = func(r PutResult) error { reported++; return r.Err }
				sum, err := b.PutMany(t.Context(), numbered(500, row.prefix), row.options)
				if err != nil || sum.Put+sum.Skipped != 500 || reported != 500 || sum.Last != "job 499" {
					t.Errorf("PutMany = %+v, %v with %d reports, want 500 jobs", sum, err, reported)
				}
				if diff := cmp.Diff(row.want, b.server.Counts()); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				calls := 0
				for _, n := range row.want {
					calls += int(n)
				}
				if took, most := time.Since(began), time.Duration(calls/16+3)*16*time.Millisecond; took > most {
					t.Errorf("took %s, want 16 calls at once: %s", took, most)
				}
			})
		})
	}
}

// TestPutManyEnds: the caller's own errors come back as they are, others in words.
func TestPutManyEnds(t *testing.T) {
	own := &azcore.ResponseError{StatusCode: http.StatusForbidden} // of another account of the caller's
	broken := func(yield func(Spec, error) bool) { yield(Spec{}, own) }
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(own)
	for name, run := range map[string]func(b *rig) error{
		"sequence": func(b *rig) error { _, err := b.PutMany(t.Context(), broken, PutOptions{}); return err },
		"report": func(b *rig) error {
			_, err := b.PutMany(t.Context(), numbered(5, ""), PutOptions{Report: func(PutResult) error { return own }})
			return err
		},
		"report of a skipped job": func(b *rig) error {
			_, err := b.PutMany(t.Context(), numbered(1, "job-"), PutOptions{Report: func(PutResult) error { return own },
				Skip: func(string) (Status, bool) { return StatusDone, true }})
			return err
		},
		"report of a failed job": func(b *rig) error {
			_, err := b.PutMany(t.Context(), Specs(Spec{ID: "a/b"}), PutOptions{Report: func(PutResult) error { return own }})
			return err
		},
		"context": func(b *rig) error { _, err := b.PutMany(ended, numbered(5, ""), PutOptions{}); return err },
	} {
		if err := run(setup(t)); !errors.Is(err, own) || errors.Is(err, ErrDenied) {
			t.Errorf("%s: PutMany = %v, want its error", name, err)
		}
	}
	b := setupBare(t, Options{})
	if _, err := b.PutMany(t.Context(), numbered(5, ""), PutOptions{}); !errors.Is(err, ErrNoDeployment) {
		t.Errorf("PutMany without a queue = %v, want ErrNoDeployment", err)
	}
	b = setup(t)
	b.server.OnCall(func(c storage.Call) storage.Fault {
		return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"}}
	})
	var unchecked error
	_, err := b.PutMany(t.Context(), numbered(5, "job-"), PutOptions{Unchecked: func(err error) { unchecked = err }})
	for role, err := range map[string]error{"Storage Queue Data Message Sender": err, "Storage Blob Data Reader": unchecked} {
		if denied, ok := errors.AsType[*DeniedError](err); !ok || denied.Role != role || strings.ContainsAny(err.Error(), "\n") {
			t.Errorf("refused = %v, want one line that names %s", err, role)
		}
	}
}
