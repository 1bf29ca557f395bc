package checkpoint

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
	"github.com/spotworker/spotworker/internal/checkpoint/runs"
)

// TestTimeline follows a job through saves, a death, an eviction, a failure and its commit.
func TestTimeline(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		began, evicted := time.Now().UTC(), false
		c := b.store.Fresh(ours, "worker-1")
		keep(c, time.Minute, &evicted)
		time.Sleep(60 * time.Second)
		mustWrite(t, c.Save(t.Context(), Snapshot{State: []byte("a"), At: 50 * time.Second}))
		time.Sleep(20 * time.Second)
		mustWrite(t, c.Touch(t.Context(), Snapshot{}))
		mustWrite(t, c.Save(t.Context(), Snapshot{State: []byte("b"), At: 80 * time.Second}))
		mustWrite(t, c.Save(t.Context(), Snapshot{State: []byte("b"), At: 80 * time.Second})) // nothing new
		first := runs.Run{Delivery: 1, Worker: "worker-1", Start: began, Saves: 2, SavedAfter: 80 * time.Second}
		b.expectRuns(t, "after saves", first)

		time.Sleep(45 * time.Second) // it dies 10 to 20 s after its last write
		second := ours
		second.Takeover = ledger.Takeover{Claimed: 40 * time.Second, Visibility: 30 * time.Second, RenewEvery: 10 * time.Second}
		c = b.acquire(t, second, "worker-2")
		first.Outcome, first.Took, first.Redone = runs.Lost, 95*time.Second, 15*time.Second
		b.expectRuns(t, "after a death", first)

		keep(c, time.Minute, &evicted)
		time.Sleep(40 * time.Second)
		evicted = true
		mustWrite(t, c.Release(t.Context(), Snapshot{State: []byte("c"), At: 38 * time.Second}))
		next := runs.Run{Delivery: 2, Worker: "worker-2", Start: began.Add(125 * time.Second), Took: 40 * time.Second, Outcome: runs.Evicted,
			Saves: 1, SavedAfter: 40 * time.Second, Redone: 2 * time.Second}
		b.expectRuns(t, "after an eviction", first, next)

		evicted = false
		c = b.acquire(t, ours, "worker-3")
		keep(c, time.Minute, &evicted)
		time.Sleep(time.Second)
		mustWrite(t, c.Fail(t.Context(), Snapshot{}, "exited with 1: Traceback\n  line 7\nValueError: no\n"))
		third := runs.Run{Delivery: 3, Worker: "worker-3", Start: began.Add(165 * time.Second), Took: time.Second, Outcome: runs.Failed,
			Redone: time.Second, Error: "exited with 1: Traceback … ValueError: no"}
		b.expectRuns(t, "after a failure", first, next, third)

		c = b.acquire(t, ours, "worker-4")
		time.Sleep(time.Second)
		mustWrite(t, c.Release(t.Context(), Snapshot{}))
		fourth := runs.Run{Delivery: 4, Worker: "worker-4", Start: began.Add(166 * time.Second), Took: time.Second, Outcome: runs.Interrupted}
		c = b.acquire(t, ours, "worker-5")
		keep(c, time.Minute, &evicted)
		time.Sleep(2 * time.Second)
		mustWrite(t, c.Commit(t.Context(), nil))
		fifth := runs.Run{Delivery: 5, Worker: "worker-5", Start: began.Add(167 * time.Second), Took: 2 * time.Second, Outcome: runs.Done}
		b.expectRuns(t, "at its end", first, next, third, fourth, fifth)
	})
}

func (b *rig) expectRuns(t *testing.T, when string, want ...runs.Run) {
	t.Helper()
	if diff := cmp.Diff(want, b.read(t).Runs.Runs()); diff != "" {
		t.Errorf("%s: the timeline (-want +got)\n%s", when, diff)
	}
}

// TestTimelineOfOthers: a cancel ends the entry of the running delivery. Deliveries by older workers
// have no entry, and an entry that they left open stays without an end.
func TestTimelineOfOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		began := time.Now().UTC()
		b.claimed(t)
		time.Sleep(3 * time.Second)
		saved := b.read(t).Runs.Runs()[0]
		if _, err := b.store.Cancel(t.Context(), ours.ID, tool, "no longer needed", false); err != nil {
			t.Fatal(err)
		}
		saved.Took, saved.Outcome = 3*time.Second, runs.Cancelled
		b.expectRuns(t, "after a cancel", saved)
		if !saved.Start.Equal(began) {
			t.Errorf("it began at %s, want %s", saved.Start, began)
		}
	})
	inBubble(t, func(t *testing.T, b *rig) {
		b.claimed(t)
		open := b.read(t).Runs.Runs()[0]
		b.writeAsOperator(t, func(r *Record) { r.Status, r.Generation, r.Owner = Open, 3, "an older worker" })
		time.Sleep(time.Second)
		at := time.Now().UTC()
		c := b.acquire(t, ours, "worker-2")
		time.Sleep(time.Second)
		mustWrite(t, c.Release(t.Context(), Snapshot{}))
		b.expectRuns(t, "after older workers", open, runs.Run{Delivery: 4, Worker: "worker-2", Start: at, Took: time.Second,
			Outcome: runs.Interrupted})
	})
}
