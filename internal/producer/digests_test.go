package producer

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/handlers"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/job"
)

func TestDigestID(t *testing.T) {
	// printf 'data\0a/b\0000x8D' | sha256sum
	const want = "digest-14499484f5290b5dd0034e663c0d0ad6"
	if got := DigestID("data", "a/b", "0x8D"); got != want {
		t.Errorf("DigestID = %s, want %s", got, want)
	}
	if got := DigestID("data", "a/b", `"0x8D"`); got != want {
		t.Errorf("DigestID of an ETag in quotes = %s, want %s", got, want)
	}
	seen := map[string]string{want: "the first"}
	for _, other := range [][3]string{{"data", "a/b", "0x8E"}, {"data", "a/c", "0x8D"}, {"datb", "a/b", "0x8D"}, {"dataa", "/b", "0x8D"}} {
		id := DigestID(other[0], other[1], other[2])
		if before := seen[id]; before != "" {
			t.Errorf("id of %q is that of %s", other, before)
		}
		seen[id] = fmt.Sprint(other)
		if err := jobid.Validate(id); err != nil {
			t.Error(err)
		}
	}
}

func TestDigests(t *testing.T) {
	b := setup(t)
	for _, name := range []string{"in/b.txt", "in/a&ü.txt", "out/c.txt"} {
		b.putBlob(t, "data", name, []byte(name), nil)
	}
	source := Digests(t.Context(), b.stores.Account.Container("data"), "data", "in/", Spec{})
	sum, err := b.Run(t.Context(), source)
	if want := (Summary{Put: 2, Last: `blob "in/b.txt"`}); sum != want || err != nil {
		t.Fatalf("run = %+v, %v; want %+v", sum, err, want)
	}
	// The handler takes the job that was put, under the id that follows from the blob.
	digest := handlers.NewDigest(b.stores.Account.Container, []string{"data"}, slog.New(slog.DiscardHandler))
	all := b.envelopes(t)
	for _, blob := range b.server.Blobs("data")[:2] {
		e, ok := all[DigestID("data", blob.Name, blob.ETag)]
		if !ok || e.Kind != "digest" {
			t.Fatalf("no digest job for blob %q", blob.Name)
		}
		payload, _ := e.Payload.Inline()
		result, err := digest.Run(t.Context(), job.New(job.Spec{ID: e.ID, Payload: payload}, nil))
		if err != nil || !strings.Contains(string(result), `"blob":"`+blob.Name+`"`) {
			t.Errorf("digest of %q = %s, %v", blob.Name, result, err)
		}
	}
}

func TestDigestsOverSeveralPages(t *testing.T) {
	const n = 52
	b := setup(t)
	b.server.LimitBlobPages(50)
	for i := range n {
		b.putBlob(t, "data", fmt.Sprintf("b%02d", i), nil, nil)
	}
	ids := map[string]bool{}
	for j, err := range jobs(Digests(t.Context(), b.stores.Account.Container("data"), "data", "", Spec{})) {
		if err != nil {
			t.Fatal(err)
		}
		ids[j.ID()] = true
	}
	if len(ids) != n {
		t.Errorf("%d ids, want %d", len(ids), n)
	}
}
