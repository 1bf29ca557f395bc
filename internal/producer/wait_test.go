package producer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// waitRig is a waiter that records its reports.
type waitRig struct {
	*Waiter
	told []string
}

func (b *rig) waiter() *waitRig {
	w := &waitRig{Waiter: &Waiter{Records: b.stores.Records}}
	w.Ended = func(e Ended) error {
		text := e.ID + " " + string(e.Status) + string(e.Result) + e.Reason
		if e.Err != nil {
			text += e.Err.Error()
		}
		w.told = append(w.told, text)
		return nil
	}
	return w
}

// add makes the waiter wait for n jobs, job-1 … job-n.
func (w *waitRig) add(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		j, err := NewJob(Spec{ID: fmt.Sprintf("job-%d", i+1), Kind: "k"})
		if err != nil {
			t.Fatal(err)
		}
		w.Add(j)
	}
}

// TestWaitReportsOutcomes has a job of each outcome, and each is reported soon
// after it ended.
func TestWaitReportsOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		w := b.waiter()
		w.add(t, 7)
		began := time.Now()
		var late []string
		tell := w.Ended
		w.Ended = func(e Ended) error {
			if since := time.Since(began) % (10 * time.Second); since > longestWait {
				late = append(late, fmt.Sprint(e.ID, " ", since))
			}
			return tell(e)
		}
		go func() { // one every 10 s
			b.seed(t, "job-1", checkpoint.Done)
			time.Sleep(10 * time.Second)
			b.seed(t, "job-2", checkpoint.Poison)
			b.seed(t, "job-3", checkpoint.Running)
			time.Sleep(10 * time.Second)
			b.record(t, "job-4", map[string]string{"v": "1", "status": "cancelled", "reason": "not%20needed"})
			b.record(t, "job-5", map[string]string{"v": "1", "status": "done", "kind": "other"})
			b.record(t, "job-6", map[string]string{"v": "99", "status": "done"})
			b.seed(t, "job-7", checkpoint.Open)
			time.Sleep(10 * time.Second)
			b.record(t, "job-3", map[string]string{"v": "1", "status": "done"})
			b.record(t, "job-7", map[string]string{"v": "1", "status": "done", "kind": "k"})
		}()
		if err := w.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"job-1 doneresult of job-1",
			"job-2 poisonno such frame",
			"job-4 cancellednot needed",
			`job-5 the id was used for other work (kind "other", done); this message goes to the poison queue`,
			"job-6 record cannot be read by this version",
			"job-3 done", "job-7 done",
		}
		if diff := cmp.Diff(want, w.told, cmp.Transformer("set", asSet)); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		if len(late) > 0 {
			t.Errorf("told late: %v, want each within %s", late, longestWait)
		}
		if n := w.Pending(); n != 0 {
			t.Errorf("%d jobs pending, want none", n)
		}
	})
}

func asSet(all []string) map[string]bool {
	set := map[string]bool{}
	for _, s := range all {
		set[s] = true
	}
	return set
}

// record writes a record as somebody else may have left it.
func (b *rig) record(t *testing.T, id string, metadata map[string]string) {
	t.Helper()
	pointers := map[string]*string{}
	for key, value := range metadata {
		pointers[key] = &value
	}
	b.putBlob(t, b.stores.Names.Records, jobid.Path(id), nil, pointers)
}

// Few jobs cost a read each now and then, many one listing for all of them, and
// a result is read once.
func TestWaitIsCheap(t *testing.T) {
	for _, row := range []struct {
		jobs        int
		reads, list int64 // at most
	}{
		{1, 125, 0},
		{readAtMost, 125 * readAtMost, 0},
		{readAtMost + 1, 2 * readAtMost, 125},
		{200, 2 * readAtMost, 125},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			b.server.SetFullPages()
			w := b.waiter()
			w.add(t, row.jobs)
			go func() {
				time.Sleep(10 * time.Minute)
				for i := range row.jobs {
					b.seed(t, fmt.Sprintf("job-%d", i+1), checkpoint.Done)
				}
			}()
			if err := w.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			counts := b.server.Counts()
			reads, lists, results := counts[storage.OpGetBlobProperties], counts[storage.OpListBlobs], counts[storage.OpGetBlob]
			if reads > row.reads || lists > row.list || results != int64(row.jobs) || len(w.told) != row.jobs {
				t.Errorf("%d jobs in 10 minutes: %d reads, %d listings, %d results, %d told; want at most %d and %d, and a result each",
					row.jobs, reads, lists, results, len(w.told), row.reads, row.list)
			}
		})
	}
}

// Storage that fails for a while is waited for; a refusal that will not pass, or
// a failure that lasts, ends the waiting.
func TestWaitInTrouble(t *testing.T) {
	for _, row := range []struct {
		name   string
		code   string
		status int
		lasts  time.Duration
		want   string // in the error; none for ""
		within time.Duration
	}{
		{"a minute of outage", "InternalError", http.StatusInternalServerError, time.Minute, "", 3 * time.Minute},
		{"an outage that lasts", "InternalError", http.StatusInternalServerError, time.Hour, "InternalError", maxOutage + time.Minute},
		{"no right to read", "AuthorizationPermissionMismatch", http.StatusForbidden, time.Hour, "AuthorizationPermissionMismatch", time.Second},
		{"no container", "ContainerNotFound", http.StatusNotFound, time.Hour, "ContainerNotFound", time.Second},
	} {
		for _, jobs := range []int{1, 2 * readAtMost} {
			t.Run(fmt.Sprintf("%s, %d jobs", row.name, jobs), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := setup(t)
					for i := range jobs {
						b.seed(t, fmt.Sprintf("job-%d", i+1), checkpoint.Done)
					}
					w := b.waiter()
					w.add(t, jobs)
					began := time.Now()
					b.server.OnCall(func(storage.Call) storage.Fault {
						if time.Since(began) > row.lasts {
							return storage.Fault{}
						}
						return storage.Fault{Refuse: &storage.Error{Status: row.status, Code: row.code}}
					})
					err := w.Wait(t.Context())
					if (err != nil) != (row.want != "") || err != nil && !strings.Contains(err.Error(), row.want) {
						t.Errorf("Wait = %v, want %q", err, row.want)
					}
					if took := time.Since(began); took > row.within {
						t.Errorf("Wait took %s, want at most %s", took, row.within)
					}
					if err == nil && len(w.told) != jobs {
						t.Errorf("%d told, want %d", len(w.told), jobs)
					}
				})
			})
		}
	}
}

// While the records of some jobs cannot be read, as those in another storage account, all other jobs
// that have ended are reported. The error at the end of ctx says that records were not read.
func TestWaitWithoutSomeRecords(t *testing.T) {
	for _, jobs := range []int{readAtMost, 2 * readAtMost} {
		for name, fault := range map[string]storage.Fault{
			"refused":   {Refuse: &storage.Error{Status: http.StatusInternalServerError, Code: "InternalError"}},
			"no answer": {Before: time.Hour},
		} {
			t.Run(fmt.Sprintf("%s, %d jobs", name, jobs), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := setup(t)
					for i := range jobs {
						b.seed(t, fmt.Sprintf("job-%d", i+1), checkpoint.Done)
					}
					w := b.waiter()
					w.add(t, jobs)
					b.server.OnCall(func(call storage.Call) storage.Fault {
						id := path.Base(call.Blob)
						if n, _ := strconv.Atoi(strings.TrimPrefix(id, "job-")); n > 0 && n%2 == 0 {
							return fault
						}
						return storage.Fault{}
					})
					enough := errors.New("enough")
					ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Minute, enough)
					defer cancel()
					err := w.Wait(ctx)
					if unread, ok := errors.AsType[*UnreadError](err); !ok || !errors.Is(err, enough) || unread.Err == nil {
						t.Errorf("Wait = %v, want an UnreadError with the cause", err)
					}
					if len(w.told) != jobs/2 {
						t.Errorf("%d told, want the %d whose records can be read", len(w.told), jobs/2)
					}
				})
			})
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.seed(t, "job-1", checkpoint.Done)
		w := b.waiter()
		w.add(t, 2)
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, enough)
		defer cancel()
		if err := w.Wait(ctx); !errors.Is(err, enough) || w.Pending() != 1 || len(w.told) != 1 {
			t.Errorf("Wait = %v with %d pending and %q told, want the cause, and job-1 told", err, w.Pending(), w.told)
		}
		b.seed(t, "job-2", checkpoint.Poison)
		if err := w.Wait(t.Context()); err != nil || len(w.told) != 2 {
			t.Errorf("a second Wait = %v with %q reported, want both", err, w.told)
		}
	})
}

func TestWaitEndsWhenTheReportFails(t *testing.T) {
	b := setup(t)
	for i := range 3 {
		b.seed(t, fmt.Sprintf("job-%d", i+1), checkpoint.Done)
	}
	w := b.waiter()
	w.add(t, 3)
	full := errors.New("disk full")
	w.Ended = func(Ended) error { return full }
	if err := w.Wait(t.Context()); !errors.Is(err, full) {
		t.Errorf("Wait = %v, want %v", err, full)
	}
}

func TestWaitForNothing(t *testing.T) {
	b := setup(t)
	if err := b.waiter().Wait(t.Context()); err != nil || len(b.server.Counts()) != 0 {
		t.Errorf("Wait = %v with calls %v, want none", err, b.server.Counts())
	}
}

func TestPollDelay(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		quiet      int
		took, want time.Duration
	}{
		{1, 0, s / 2},
		{2, 0, s},
		{3, 0, 2 * s},
		{5, 0, 5 * s},
		{50, 0, 5 * s},
		{1, 3 * s, 3 * s},
		{2, 20 * s, 20 * s},
	} {
		if got := pollDelay(row.quiet, row.took); got != row.want {
			t.Errorf("pollDelay(%d, %s) = %s, want %s", row.quiet, row.took, got, row.want)
		}
	}
}

func TestByListing(t *testing.T) {
	for _, row := range []struct {
		jobs, listed int
		want         bool
	}{
		{1, 0, false}, {readAtMost, 0, false}, {readAtMost + 1, 0, true},
		{100, 499_999, true}, {100, 500_000, false}, {10_000, 500_000, true},
	} {
		if got := byListing(row.jobs, row.listed); got != row.want {
			t.Errorf("byListing(%d, %d) = %t, want %t", row.jobs, row.listed, got, row.want)
		}
	}
}
