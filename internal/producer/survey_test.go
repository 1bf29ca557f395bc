package producer

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// seedMany puts records of jobs with numbered ids that have that status.
func (b *rig) seedMany(t *testing.T, from, to int, status checkpoint.Status) {
	t.Helper()
	for i := from; i <= to; i++ {
		b.seed(t, fmt.Sprint("job-", i), status)
	}
}

// seeded are jobs with the ids that [rig.seedMany] gives, the last first.
func seeded(lines int) iter.Seq2[Spec, error] {
	return func(yield func(Spec, error) bool) {
		for i := lines; i > 0; i-- {
			if !yield(Spec{ID: fmt.Sprint("job-", i), Kind: "k"}, nil) {
				return
			}
		}
	}
}

// TestSurveyCalls: a long run with ids makes a read for each of the first jobs, and then one
// listing for all others. Each job has the result that its own read would have given.
func TestSurveyCalls(t *testing.T) {
	const lines, done, running = 600, 150, 250
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.CheckIDs = true
		b.seedMany(t, 1, done, checkpoint.Done)
		b.seedMany(t, done+1, running, checkpoint.Running)
		b.server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: time.Millisecond} })
		b.server.ResetCounts()
		sum, err := b.Run(t.Context(), seeded(lines))
		if err != nil || sum.Put != lines-done || sum.Skipped != done || sum.Failed != 0 {
			t.Errorf("run = %+v, %v, want %d put and %d skipped", sum, err, lines-done, done)
		}
		calls := b.server.Counts()
		reads, lists := calls[storage.OpGetBlobProperties], calls[storage.OpListBlobs]
		if most := int64(readsForPage + 2*DefaultParallel); reads < readsForPage || reads > most || lists < 1 || lists > 2 {
			t.Errorf("%d reads and %d listings, want %d to %d reads and one page, which the emulator may split", reads, lists, readsForPage, most)
		}
		for id, e := range b.envelopes(t) {
			var n int
			if _, err := fmt.Sscanf(id, "job-%d", &n); err != nil || n <= done || e.Resume != (n <= running) || !e.ChosenID {
				t.Errorf("message of %s with resume %t, chosen %t, want jobs that are not done, and resume for those with a record", id, e.Resume,
					e.ChosenID)
			}
		}
	})
}

// TestSurveyCallsOfTakeOver: a run that takes over claims reads and writes the records of running
// jobs alone, once it has listed them.
func TestSurveyCallsOfTakeOver(t *testing.T) {
	const lines, done, running = 600, 150, 100
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.TakeOver = true
		b.seedMany(t, 1, done, checkpoint.Done)
		b.seedMany(t, done+1, done+running, checkpoint.Running)
		b.server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: time.Millisecond} })
		b.server.ResetCounts()
		sum, err := b.Run(t.Context(), func(yield func(Spec, error) bool) {
			for spec, err := range seeded(lines) {
				if !yield(spec, err) {
					return
				}
			}
			yield(Spec{ID: "job-1", Kind: "other"}, nil)
		})
		if err != nil || sum.Put != lines-done || sum.Skipped != done || sum.Failed != 1 {
			t.Errorf("run = %+v, %v, want %d put, %d skipped and 1 failed, whose id has other work", sum, err, lines-done, done)
		}
		reads := b.server.Counts()[storage.OpGetBlobProperties]
		if most := int64(running + readsForPage + 2*DefaultParallel); reads < running || reads > most {
			t.Errorf("%d reads, want %d to %d", reads, running, most)
		}
		for i := range running {
			if r, err := b.stores.Records.Read(t.Context(), fmt.Sprint("job-", done+1+i)); err != nil || r.Status != checkpoint.Open {
				t.Errorf("record of job-%d is %s, %v, want open", done+1+i, r.Status, err)
			}
		}
	})
}

// TestSurveyRules: a survey and a read of the record rule alike.
func TestSurveyRules(t *testing.T) {
	b := setup(t)
	b.seedMany(t, 1, 1, checkpoint.Done)
	b.seed(t, "open", checkpoint.Open)
	b.seed(t, "poison", checkpoint.Poison)
	s := &survey{records: b.stores.Records, reads: readsForPage}
	if _, _, err := s.lookup(t.Context(), checkpoint.Delivery{ID: "none"}); err != nil || s.ready.IsZero() {
		t.Fatalf("lookup = %v, ready %s, want a listing", err, s.ready)
	}
	for _, id := range []string{"job-1", "open", "poison", "none"} {
		for _, kind := range []string{"k", "other"} {
			d := checkpoint.Delivery{ID: id, Kind: kind, PayloadHash: "other"}
			if r, err := b.stores.Records.Read(t.Context(), id); err == nil && kind == "k" {
				d.PayloadHash = r.PayloadHash
			}
			want, wantRuling, err := b.stores.Records.Lookup(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			b.server.ResetCounts()
			got, ruling, err := s.lookup(t.Context(), d)
			if err != nil || got.Status != want.Status || ruling != wantRuling {
				t.Errorf("%s of kind %s = %s, %s, %v, want %s, %s", id, kind, got.Status, ruling, err, want.Status, wantRuling)
			}
			if n := len(b.server.Counts()); n > 0 {
				t.Errorf("%s took calls: %v", id, b.server.Counts())
			}
		}
	}
	s.ready = s.ready.Add(-surveyAge - time.Second)
	if _, _, err := s.lookup(t.Context(), checkpoint.Delivery{ID: "open"}); err != nil || b.server.Counts()[storage.OpGetBlobProperties] != 1 {
		t.Errorf("an old survey made %v, want a read", b.server.Counts())
	}
}

// TestSurveyIsRefused: where records cannot be listed, each is read as before.
func TestSurveyIsRefused(t *testing.T) {
	b := setup(t)
	b.CheckIDs = true
	b.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpListBlobs {
			return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
		}
		return storage.Fault{}
	})
	const lines = 3 * readsForPage
	sum, err := b.Run(t.Context(), Lines(numbered(lines), Spec{}))
	if err != nil || sum.Put != lines {
		t.Errorf("run = %+v, %v, want all put", sum, err)
	}
	if calls := b.server.Counts(); calls[storage.OpGetBlobProperties] != lines || calls[storage.OpListBlobs] != 1 {
		t.Errorf("calls = %v, want a read for each job after one refusal", calls)
	}
}

// TestSurveyOfManyRecords: a listing of many pages takes one page for each so many reads, and
// an unfinished one ends with the run.
func TestSurveyOfManyRecords(t *testing.T) {
	proof.Only(t, "it reads many records")
	proof.WithoutRace(t, "thousands of records, one call after the other")
	b := setup(t)
	b.CheckIDs = true
	b.Parallel = 1
	b.server.SetFullPages()
	pages := proof.Times(1, 2)
	b.seedMany(t, 1, pages*pageRecords+1, checkpoint.Running)
	ids := []string{}
	for i := range pages*readsForPage + 2 {
		ids = append(ids, fmt.Sprint("new-", i))
	}
	for _, row := range []struct{ jobs, lists int }{{readsForPage, 0}, {readsForPage + 1, 1}, {len(ids), pages}} {
		b.server.ResetCounts()
		sum, err := b.Run(t.Context(), func(yield func(Spec, error) bool) {
			for _, id := range slices.Clone(ids[:row.jobs]) {
				if !yield(Spec{ID: id, Kind: "k"}, nil) {
					return
				}
			}
		})
		calls := b.server.Counts()
		lists, reads := calls[storage.OpListBlobs], calls[storage.OpGetBlobProperties]
		if err != nil || sum.Put != row.jobs || lists != int64(row.lists) || reads != int64(row.jobs) {
			t.Errorf("%d jobs = %+v, %v, %d listings and %d reads, want %d listings", row.jobs, sum, err, lists, reads, row.lists)
		}
	}
}
