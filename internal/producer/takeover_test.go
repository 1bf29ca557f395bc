package producer

import (
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// writes counts the calls that change something.
func (b *rig) writes() (n int64) {
	for operation, count := range b.server.Counts() {
		for _, verb := range []string{"Put", "Set", "Create", "Delete", "Update", "Clear"} {
			if strings.HasPrefix(operation, verb) {
				n += count
			}
		}
	}
	return n
}

func TestTakeOver(t *testing.T) {
	for _, row := range []struct {
		status checkpoint.Status // "" for no record
		change func(*Spec)
		put    bool // a message
		resume bool
		opened bool
		failed string
	}{
		{status: "", put: true},
		{status: checkpoint.Running, put: true, resume: true, opened: true},
		{status: checkpoint.Open, put: true, resume: true},
		{status: checkpoint.Done},
		{status: checkpoint.Poison},
		{status: checkpoint.Running, change: func(s *Spec) { s.Kind = "other" },
			failed: `the job: open record of job a: the id was used for other work: its kind is "k"`},
		{status: checkpoint.Done, change: func(s *Spec) { s.Payload = queue.BytesPayload([]byte("other")) },
			failed: `the job: open record of job a: the id was used for other work: its kind is "k"`},
	} {
		for _, dry := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %s dry=%t", row.status, row.failed, dry), func(t *testing.T) {
				b := setup(t)
				b.TakeOver, b.DryRun = true, dry
				spec := Spec{ID: "a", Kind: "k"}
				if row.status != "" {
					spec = b.seed(t, "a", row.status)
				}
				if row.change != nil {
					row.change(&spec)
				}
				var found checkpoint.Status
				b.Confirmed = func(_ Job, f checkpoint.Status) error { found = f; return nil }
				b.server.ResetCounts()
				sum, err := b.Run(t.Context(), one(t, spec))
				want := Summary{Last: "the job"}
				switch {
				case row.failed != "":
					want.Failed = 1
				case row.put:
					want.Put = 1
				default:
					want.Skipped = 1
				}
				if sum != want || err != nil {
					t.Errorf("run = %+v, %v; want %+v", sum, err, want)
				}
				if row.put && found != row.status || want.Skipped == 1 && b.skipped[0] != "a "+string(row.status) {
					t.Errorf("told %q, skipped %q; want the status %q", found, b.skipped, row.status)
				}
				if got := strings.Join(b.failed, "\n"); got != row.failed {
					t.Errorf("failed = %s\nwant     %s", got, row.failed)
				}
				b.expectTakenOver(t, row.put && !dry, row.resume, row.opened && !dry)
				if n := b.writes(); dry && n != 0 {
					t.Errorf("a dry run made %d writes: %v", n, b.server.Counts())
				}
			})
		}
	}
}

// expectTakenOver looks at message and record after a take-over.
func (b *rig) expectTakenOver(t *testing.T, put, resume, opened bool) {
	t.Helper()
	e, ok := b.envelopes(t)["a"]
	if ok != put || ok && e.Resume != resume {
		t.Errorf("message = %+v, %t; want one: %t, with resume: %t", e, ok, put, resume)
	}
	r, err := b.stores.Records.Read(t.Context(), "a")
	if got := err == nil && r.Owner == "producer@desk"; got != opened || opened && r.Status != checkpoint.Open {
		t.Errorf("record = %+v, %v; want it opened: %t", r, err, opened)
	}
}

// A job whose worker is dead and whose message is gone is done by the next
// delivery, not an hour later.
func TestTakeOverIsDoneAtOnce(t *testing.T) {
	for _, takeOver := range []bool{false, true} {
		b := setup(t)
		b.TakeOver = takeOver
		if _, err := b.Run(t.Context(), one(t, b.seed(t, "a", checkpoint.Running))); err != nil {
			t.Fatal(err)
		}
		want := map[bool][]string{true: {"a"}}[takeOver]
		if diff := cmp.Diff(want, b.deliver(t, 10)); diff != "" {
			t.Errorf("take over %t: committed (-want +got):\n%s", takeOver, diff)
		}
	}
}

// Ids that were used for other work say nothing about the other jobs.
func TestTakeOverOfOtherWorkIsNoReasonToStop(t *testing.T) {
	const n = 3 * DefaultParallel
	b := setup(t)
	b.TakeOver = true
	for i := range n {
		b.seed(t, fmt.Sprintf("job-%d", i+1), checkpoint.Running)
	}
	sum, err := b.Run(t.Context(), Lines(numbered(n+1), Spec{})) // with payloads of their own
	if want := (Summary{Put: 1, Failed: n, Last: fmt.Sprintf("line %d", n+1)}); sum != want || err != nil {
		t.Errorf("run = %+v, %v; want %+v", sum, err, want)
	}
}

func TestTakeOverRefused(t *testing.T) {
	b := setup(t)
	b.TakeOver, b.Parallel = true, 1
	spec := b.seed(t, "a", checkpoint.Running)
	b.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpSetBlobMetadata {
			return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"}}
		}
		return storage.Fault{}
	})
	sum, err := b.Run(t.Context(), one(t, spec))
	if err == nil || sum.Failed != 1 || len(b.envelopes(t)) != 0 {
		t.Errorf("run = %+v, %v; want it to end without a message", sum, err)
	}
}

// TestDryRun counts the jobs that would be put, and puts nothing.
func TestDryRun(t *testing.T) {
	b := setup(t)
	b.server.SetFullPages()
	b.DryRun = true
	for _, name := range []string{"a", "b"} {
		b.putBlob(t, "data", name, nil, nil)
	}
	b.server.ResetCounts()
	big := Spec{ID: "big", Kind: "k", Payload: queue.BytesPayload(make([]byte, 100<<10))}
	in := `{"kind":"k"}` + "\n{}\n" + `{"kind":"k","deadline":"9999-12-31T23:59:59-23:00"}` // a year that RFC 3339 cannot write
	for _, row := range []struct {
		jobs iter.Seq2[Spec, error]
		want Summary
	}{
		{one(t, big), Summary{Put: 1, Last: "the job"}},
		{Lines(strings.NewReader(in), Spec{}), Summary{Put: 1, Failed: 2, Last: "line 3"}},
		{Digests(t.Context(), b.stores.Account.Container("data"), "data", "", Spec{}), Summary{Put: 2, Last: `blob "b"`}},
	} {
		if sum, err := b.Run(t.Context(), row.jobs); sum != row.want || err != nil {
			t.Errorf("run = %+v, %v; want %+v", sum, err, row.want)
		}
	}
	if diff := cmp.Diff(map[string]int64{storage.OpListBlobs: 1}, b.server.Counts()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
