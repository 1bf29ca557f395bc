package producer

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
)

// worker is a heartbeat of a worker that takes from the deployment's queue.
func worker(name string, kinds ...string) presence.Presence {
	return presence.Presence{Worker: name, State: "process", StartedAt: time.Now(), At: time.Now(), TakesFrom: []string{"test-jobs"},
		Kinds: kinds}
}

// TestUnknownKinds: a run names each kind that no live worker has, once, by one listing,
// and puts the jobs.
func TestUnknownKinds(t *testing.T) {
	b := setup(t)
	b.Workers = b.stores.Workers
	stopped := worker("stopped", "digset")
	stopped.State = "stopped"
	elsewhere := worker("elsewhere", "digset")
	elsewhere.TakesFrom = []string{"test-jobs-ondemand"}
	for _, w := range []presence.Presence{worker("a", "compress", "digest"), worker("b", "digest"), stopped, elsewhere} {
		if err := b.stores.Workers.Write(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	b.server.SetFullPages()
	b.server.ResetCounts()
	var unknown []*UnknownKindError
	b.UnknownKind = func(err *UnknownKindError) { unknown = append(unknown, err) }
	lines := strings.NewReader(`{"kind":"digset"}
{"kind":"digest"}
{"kind":"digset"}
{"kind":"compress"}
`)
	sum, err := b.Run(t.Context(), Lines(lines, Spec{}))
	if err != nil || sum.Put != 4 {
		t.Fatalf("Run = %+v, %v, want 4 jobs", sum, err)
	}
	const want = `no live worker on queue test-jobs has kind "digset" (did you mean "digest"?); ` +
		`the kinds of 2 workers are: compress, digest. ` +
		"A job goes to the poison queue if no worker has had its kind for an hour"
	if len(unknown) != 1 || unknown[0].Error() != want || unknown[0].Workers != 2 ||
		!slices.Equal(unknown[0].Kinds, []string{"compress", "digest"}) {
		t.Errorf("unknown kinds = %+v, want one: %s", unknown, want)
	}
	if got := b.server.Counts()["ListBlobs"]; got != 1 {
		t.Errorf("%d listings, want 1: %v", got, b.server.Counts())
	}
}

// TestKnownKinds: if asked to, jobs of a kind that no live worker has are not put.
func TestKnownKinds(t *testing.T) {
	b := setup(t)
	b.Workers, b.KnownKinds = b.stores.Workers, true
	run := func(kind string) (Summary, error) {
		b.failed = nil
		return b.Run(t.Context(), one(t, Spec{Kind: kind}))
	}
	if sum, err := run("digest"); err != nil || sum.Failed != 1 ||
		!strings.Contains(b.failed[0], `no worker is alive that takes from queue test-jobs`) {
		t.Errorf("without workers: Run = %+v, %v, %q, want a failure for that reason", sum, err, b.failed)
	}
	if err := b.stores.Workers.Write(t.Context(), worker("a", "digest")); err != nil {
		t.Fatal(err)
	}
	if sum, err := run("render"); err != nil || sum.Failed != 1 ||
		!strings.Contains(b.failed[0], `the job: no live worker on queue test-jobs has kind "render"; the kinds of 1 workers are: digest.`) {
		t.Errorf("an unknown kind: Run = %+v, %v, %q, want a failure that names the known one", sum, err, b.failed)
	}
	if sum, err := run("digest"); err != nil || sum.Put != 1 {
		t.Errorf("a known kind: Run = %+v, %v, %q, want it put", sum, err, b.failed)
	}
	if err := b.stores.Workers.Write(t.Context(), worker("old")); err != nil { // a version that lists no kinds
		t.Fatal(err)
	}
	if sum, err := run("render"); err != nil || sum.Put != 1 {
		t.Errorf("a kind that a worker may have: Run = %+v, %v, %q, want it put", sum, err, b.failed)
	}
}

// TestKindsWithoutWorkers: a deployment without a container of heartbeats has no workers.
func TestKindsWithoutWorkers(t *testing.T) {
	b := setup(t)
	if _, err := b.stores.Account.Container(b.stores.Names.Workers).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b.Workers = b.stores.Workers
	var got *UnknownKindError
	b.UnknownKind = func(err *UnknownKindError) { got = err }
	if _, err := b.Run(t.Context(), one(t, Spec{Kind: "k"})); err != nil || got == nil || got.Workers != 0 {
		t.Errorf("Run = %v and %v, want that no worker is alive", err, got)
	}
}
