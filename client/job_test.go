package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/checkpoint/runs"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

func pathOf(id string) string { return jobid.Path(id) }

func TestGet(t *testing.T) {
	b := setup(t)
	claim := b.seed(t, "a", StatusRunning)
	for _, state := range []string{"former", "half"} {
		if err := claim.Save(t.Context(), checkpoint.Snapshot{State: []byte(state), Version: 3, Fraction: 0.5, Text: "page 5"}); err != nil {
			t.Fatal(err)
		}
	}
	b.server.ResetCounts()
	j, err := b.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if n := b.server.Counts(); n[storage.OpGetBlobProperties] != 1 || len(n) != 1 {
		t.Errorf("calls = %v, want one read", n)
	}
	if j.UpdatedAt.IsZero() || j.Age() < 0 || j.CreatedAt.IsZero() || j.ClaimedAt.IsZero() {
		t.Errorf("times = %v, %v, %v, %v; want all known", j.UpdatedAt, j.ReadAt, j.CreatedAt, j.ClaimedAt)
	}
	want := Job{
		ID: "a", Kind: "k", Status: StatusRunning, Fraction: 0.5, Text: "page 5", Owner: "worker-1", Deliveries: 1,
		StateSize: 4, StateVersion: 3, WorkSHA256: j.WorkSHA256,
		CreatedAt: j.CreatedAt, ClaimedAt: j.ClaimedAt, UpdatedAt: j.UpdatedAt, ReadAt: j.ReadAt,
	}
	if len(j.Runs) != 1 || j.Runs[0].CheckpointAt.Before(j.Runs[0].StartedAt) {
		t.Fatalf("Runs = %+v, want one with its last checkpoint", j.Runs)
	}
	want.Runs = []Run{{Delivery: 1, Worker: "worker-1", StartedAt: j.ClaimedAt, Checkpoints: 2, CheckpointAt: j.Runs[0].CheckpointAt}}
	if diff := cmp.Diff(want, j); diff != "" {
		t.Errorf("Get (-want +got):\n%s", diff)
	}
}

// TestInputs: a job alone and its log have its inputs; lists, which may be long, have not.
func TestInputs(t *testing.T) {
	b := setup(t)
	inputs := []job.Input{{Container: "data", Blob: "a.csv"}, {Container: "data", Prefix: "frames/7/", To: "in"}}
	text, err := json.Marshal(inputs)
	if err != nil {
		t.Fatal(err)
	}
	for id, packed := range map[string]string{"a": checkpoint.PackInputs(text), "b": "", "c": "A"} {
		d := checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: queue.Payload{}.Hash(), MessageID: "m" + id, InputList: packed}
		if _, err := b.stores.Records.Create(t.Context(), d, "worker-1"); err != nil {
			t.Fatal(err)
		}
		want := map[string][]job.Input{"a": inputs}[id]
		j, err := b.Get(t.Context(), id)
		if diff := cmp.Diff(want, j.Inputs); err != nil || diff != "" {
			t.Errorf("Get of %s = %v (-want +got):\n%s", id, err, diff)
		}
		log, err := b.Log(t.Context(), id)
		if diff := cmp.Diff(want, log.Job.Inputs); err != nil || diff != "" {
			t.Errorf("Log of %s = %v (-want +got):\n%s", id, err, diff)
		}
	}
	for j, err := range b.List(t.Context(), Filter{}) {
		if err != nil || j.Inputs != nil {
			t.Errorf("List: %+v, %v, want no inputs", j.Inputs, err)
		}
	}
}

// TestResult: every state of a job has an error of its own.
func TestResult(t *testing.T) {
	b := setup(t)
	for _, status := range []Status{StatusOpen, StatusRunning, StatusDone, StatusPoison, StatusCancelled} {
		b.seed(t, string(status), status)
	}
	b.seedNewer(t, "newer")
	all := map[string]error{
		"open": ErrNotFinished, "running": ErrNotFinished, "done": nil, "poison": ErrPoison, "cancelled": ErrCancelled,
		"newer": ErrNewerVersion, "missing": ErrNotFound,
	}
	for id, want := range all {
		result, err := b.Result(t.Context(), id)
		for _, other := range slices.Concat(slices.Collect(maps.Values(all)), []error{ErrDenied, ErrNoDeployment}) {
			if other != nil && errors.Is(err, other) != errors.Is(want, other) {
				t.Errorf("Result of %s = %v; errors.Is %v: %t", id, err, other, errors.Is(err, other))
			}
		}
		if got := string(result); id == "done" && got != `{"of":"done"}` || id != "done" && got != "" {
			t.Errorf("Result of %s = %s", id, got)
		}
	}
	_, err := b.Result(t.Context(), "poison")
	if ended, ok := errors.AsType[*EndedError](err); !ok || ended.Job.Reason != "no such frame" ||
		err.Error() != "job poison is poison: no such frame" {
		t.Errorf("Result of poison = %v, want the reason", err)
	}
	if _, err := b.Result(t.Context(), "not/an id"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("Result of an invalid id = %v, want why it is invalid", err)
	}
	if j, err := b.Get(t.Context(), "newer"); !errors.Is(err, ErrNewerVersion) || j.ID != "newer" || j.Status != StatusUnknown {
		t.Errorf("Get of a newer record = %+v, %v, want what is known of it", j, err)
	}
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.seed(t, "a-1", StatusDone)
		b.seed(t, "a-2", StatusRunning)
		time.Sleep(time.Hour)
		noon := time.Now()
		time.Sleep(time.Hour)
		b.seed(t, "b-1", StatusPoison)
		b.seedNewer(t, "b-2")
		for name, row := range map[string]struct {
			filter Filter
			want   []string
		}{
			"all":           {Filter{}, []string{"a-1", "a-2", "b-1", "b-2"}},
			"status":        {Filter{Status: []Status{StatusRunning, StatusPoison}}, []string{"a-2", "b-1"}},
			"unknown":       {Filter{Status: []Status{StatusUnknown}}, []string{"b-2"}},
			"kind":          {Filter{Kind: "k"}, []string{"a-1", "a-2", "b-1"}},
			"other kind":    {Filter{Kind: "other"}, nil},
			"prefix":        {Filter{Prefix: "a-"}, []string{"a-1", "a-2"}},
			"young":         {Filter{UpdatedAfter: noon}, []string{"b-1", "b-2"}},
			"old":           {Filter{UpdatedBefore: noon}, []string{"a-1", "a-2"}},
			"created":       {Filter{CreatedBefore: noon, Status: []Status{StatusDone}}, []string{"a-1"}},
			"created after": {Filter{CreatedAfter: noon}, []string{"b-1"}},
		} {
			var got []string
			for j, err := range b.List(t.Context(), row.filter) {
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				got = append(got, j.ID)
			}
			slices.Sort(got)
			if !slices.Equal(got, row.want) {
				t.Errorf("%s: listed %v, want %v", name, got, row.want)
			}
		}
	})
}

// TestListPages: a listing makes a call for 5,000 records, and none that is not needed.
func TestListPages(t *testing.T) {
	b := setup(t)
	b.server.SetFullPages()
	b.server.LimitBlobPages(50)
	for i := range 51 {
		b.seed(t, fmt.Sprintf("job-%d", i), StatusRunning)
	}
	for most, want := range map[int]int64{1: 1, 50: 1, 60: 2} {
		b.server.ResetCounts()
		n := 0
		for _, err := range b.List(t.Context(), Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == most {
				break
			}
		}
		if got := b.server.Counts()[storage.OpListBlobs]; got != want || n != min(most, 51) {
			t.Errorf("%d jobs in %d calls, want %d in %d", n, got, min(most, 51), want)
		}
	}
}

// TestFilter: a job is selected if all fields of the filter select it.
func TestFilter(t *testing.T) {
	j := Job{ID: "a-1", Kind: "k", Group: "g", Status: StatusDone}
	for _, row := range []struct {
		filter Filter
		want   bool
	}{
		{Filter{}, true},
		{Filter{Status: []Status{StatusOpen, StatusDone}, Kind: "k", Group: "g", Prefix: "a-"}, true},
		{Filter{Status: []Status{StatusOpen}, Kind: "k", Group: "g", Prefix: "a-"}, false},
		{Filter{Status: []Status{StatusDone}, Kind: "other", Group: "g", Prefix: "a-"}, false},
		{Filter{Status: []Status{StatusDone}, Kind: "k", Group: "other", Prefix: "a-"}, false},
		{Filter{Status: []Status{StatusDone}, Kind: "k", Group: "g", Prefix: "b"}, false},
		{Filter{Group: "other"}, false}, {Filter{Prefix: "b"}, false},
		{Filter{Select: func(j Job) bool { return j.ID != "a-1" }}, false},
	} {
		if got := row.filter.Has(j); got != row.want {
			t.Errorf("%+v selects it: %t, want %t", row.filter, got, row.want)
		}
	}
}

// TestJobAlone: a job that is read alone has its deliveries, its follow-up jobs, and the inputs
// of its record if these can be read.
func TestJobAlone(t *testing.T) {
	start := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	r := checkpoint.Record{Version: checkpoint.Version, ID: "a", Status: checkpoint.Done, Size: 7, FollowUps: "b,c,*"}
	r.Runs = r.Runs.With(runs.Run{Delivery: 1, Worker: "w-1", Start: start, Took: time.Minute, Outcome: runs.Evicted, Saves: 1,
		SavedAfter: 50 * time.Second, Redone: 10 * time.Second})
	r.Runs = r.Runs.With(runs.Run{Delivery: 2, Worker: "w-2", Start: start.Add(time.Hour)})
	want := []Run{
		{Delivery: 1, Worker: "w-1", StartedAt: start, EndedAt: start.Add(time.Minute), Outcome: "evicted", Checkpoints: 1,
			CheckpointAt: start.Add(50 * time.Second), Redone: 10 * time.Second},
		{Delivery: 2, Worker: "w-2", StartedAt: start.Add(time.Hour)},
	}
	j := inFull(r)
	if diff := cmp.Diff(want, j.Runs); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(FollowUps{IDs: []string{"b", "c"}, More: true}, j.FollowUps); diff != "" {
		t.Errorf("follow-up jobs (-want +got):\n%s", diff)
	}
	if j.Fraction != 1 || j.ResultSize != 7 {
		t.Errorf("a job that is done has the fraction %g and a result of %d bytes, want 1 and 7", j.Fraction, j.ResultSize)
	}
	for text, want := range map[string]int{`[{"container":"c","blob":"b"}]`: 1, `[{"container":"c"},1]`: 0, `{`: 0} {
		r.InputList = checkpoint.PackInputs([]byte(text))
		if got := inFull(r).Inputs; len(got) != want || got != nil && want == 0 {
			t.Errorf("inputs of %s = %+v, want %d", text, got, want)
		}
	}
}
