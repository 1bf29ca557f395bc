package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// seedResult writes the record of a job that is done, with a result.
func (b *rig) seedResult(t *testing.T, id, result string) {
	t.Helper()
	d := checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: queue.Payload{}.Hash(), MessageID: "message of " + id}
	claim, err := b.stores.Records.Create(t.Context(), d, "worker-1")
	if err == nil {
		err = claim.Commit(t.Context(), []byte(result))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// collect returns the results by id.
func (b *rig) collect(t *testing.T, f Filter) map[string]string {
	t.Helper()
	got := map[string]string{}
	for o, err := range b.Results(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		if _, again := got[o.Job.ID]; again || o.Err != nil || o.Job.Status != StatusDone || o.Result == nil {
			t.Errorf("outcome = %+v, want the result of a job, once", o)
		}
		got[o.Job.ID] = string(o.Result)
	}
	return got
}

// TestResultsCalls: a listing and a call for each result that is not empty read all results.
// In the bubble no call is slow, and so none is repeated.
func TestResultsCalls(t *testing.T) { bubble(testResultsCalls)(t) }

func testResultsCalls(t *testing.T) {
	const some = 30
	b := setup(t)
	for i := range some {
		b.seedResult(t, fmt.Sprint("full-", i), fmt.Sprint("result ", i))
		b.seedResult(t, fmt.Sprint("empty-", i), "")
	}
	b.seed(t, "running", StatusRunning)
	b.seed(t, "poison", StatusPoison)
	b.server.ResetCounts()
	got := b.collect(t, Filter{Status: []Status{StatusPoison}})
	if len(got) != 2*some || got["full-7"] != "result 7" || got["empty-7"] != "" {
		t.Errorf("%d results = %v", len(got), got)
	}
	// The emulator may split a listing into several pages.
	if n := b.server.Counts(); len(n) != 2 || n[storage.OpListBlobs] == 0 || n[storage.OpGetBlob] != some {
		t.Errorf("calls = %v, want a listing and %d reads", n, some)
	}
	b.server.ResetCounts()
	for j, err := range b.List(t.Context(), Filter{Status: []Status{StatusDone}}) {
		if err == nil {
			_, err = b.Result(t.Context(), j.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := b.server.Counts(); n[storage.OpGetBlob] != 2*some || n[storage.OpGetBlobProperties] != 2*some {
		t.Errorf("calls one by one = %v, want two for each job", n)
	}
	twelve := func(j Job) bool { return j.ID == "full-12" }
	if got := b.collect(t, Filter{Prefix: "full-1", Select: twelve}); len(got) != 1 || got["full-12"] == "" {
		t.Errorf("selected results = %v, want that of full-12", got)
	}
	for _, err := range b.Results(t.Context(), Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		break // leaves no goroutine
	}
}

// TestResultsAfterTheListing: what happens to a job between the listing and the read of its
// result is not lost: a new result counts, and a job without one is left out.
func TestResultsAfterTheListing(t *testing.T) {
	b := setup(t)
	for _, id := range []string{"same", "removed", "again", "runs", "given-up"} {
		b.seedResult(t, id, "old")
	}
	got, failed := map[string]string{}, error(nil)
	f := Filter{Select: func(j Job) bool {
		if j.ID == "same" {
			return true
		}
		if _, err := b.stores.Account.Container(b.stores.Names.Records).NewBlobClient(pathOf(j.ID)).Delete(t.Context(), nil); err != nil {
			t.Error(err)
		}
		switch j.ID {
		case "again":
			b.seedResult(t, j.ID, "new")
		case "runs":
			b.seed(t, j.ID, StatusRunning)
		}
		return j.ID != "given-up"
	}}
	for o, err := range b.Results(t.Context(), f) {
		if failed = err; err == nil {
			got[o.Job.ID] = string(o.Result)
		}
	}
	if failed != nil || len(got) != 2 || got["same"] != "old" || got["again"] != "new" {
		t.Errorf("results = %v, %v, want those of same and again", got, failed)
	}

	f.Select = func(j Job) bool {
		if j.ID == "again" {
			if _, err := b.stores.Account.Container(b.stores.Names.Records).NewBlobClient(pathOf(j.ID)).Delete(t.Context(), nil); err != nil {
				t.Error(err)
			}
			b.seed(t, j.ID, StatusPoison)
		}
		return j.ID == "again"
	}
	for _, err := range b.Results(t.Context(), f) {
		failed = err
	}
	if !errors.Is(failed, ErrPoison) {
		t.Errorf("results of a job that was dead-lettered = %v, want ErrPoison", failed)
	}
}

// TestResultsFail: the first failure ends the results, whether of the listing or of a result, and
// a result of one byte counts.
func TestResultsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.server.SetFullPages()
		b.server.LimitBlobPages(2)
		for i := range 4 {
			b.seedResult(t, fmt.Sprint("job-", i), "x")
		}
		if got := b.collect(t, Filter{}); len(got) != 4 || got["job-2"] != "x" {
			t.Errorf("results = %v, want four of one byte", got)
		}
		for operation, most := range map[string]int64{storage.OpListBlobs: 1, storage.OpGetBlob: 2} {
			b.server.OnCall(func(c storage.Call) storage.Fault {
				if c.Operation == operation {
					return refused
				}
				return storage.Fault{After: time.Second}
			})
			b.server.ResetCounts()
			var last error
			for _, err := range b.Results(t.Context(), Filter{}) {
				last = err
			}
			if !errors.Is(last, ErrDenied) {
				t.Errorf("results while %s is denied = %v, want ErrDenied", operation, last)
			}
			if n := b.server.Counts()[storage.OpListBlobs]; n > most {
				t.Errorf("the records were listed in %d calls after %s was denied, want at most %d", n, operation, most)
			}
		}
	})
}

// TestResultsAtOnce: as many results are read at once as the client is set to, a loop that ends
// leaves no reads behind, and the end of the context is the error.
func TestResultsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setupBare(t, Options{Parallel: 1})
		if err := b.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			b.seedResult(t, fmt.Sprint("job-", i), "x")
		}
		b.server.OnCall(func(c storage.Call) (f storage.Fault) {
			if c.Operation == storage.OpGetBlob {
				f.Before = 100 * time.Millisecond
			}
			return f
		})
		began := time.Now()
		b.collect(t, Filter{})
		if took := time.Since(began); took != 400*time.Millisecond {
			t.Errorf("4 results one by one took %s, want 400ms", took)
		}
		for _, err := range b.Results(context.WithoutCancel(t.Context()), Filter{}) { // ended by the loop's end alone
			if err != nil {
				t.Error(err)
			}
			break
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		enough := errors.New("enough")
		var last error
		for _, err := range b.Results(ctx, Filter{}) {
			last = err
			if err == nil {
				synctest.Wait() // the next result waits for this loop, or is read
				time.Sleep(time.Second)
				cancel(enough)
				synctest.Wait()
			}
		}
		if !errors.Is(last, enough) {
			t.Errorf("results whose context ends = %v, want its cause", last)
		}
	})
}
