package checkpoint

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
)

// keep makes a claim keep the ledger of a handler that is called now, as a delivery does.
func keep(c *Claim, next time.Duration, evicted *bool) {
	watch, slot := stopwatch(), 2*time.Second // it waited and restored before
	c.SetFacts(func(f Facts) Facts {
		f.RunTime, f.NextWrite = watch(), next
		f.Spent = ledger.Delivery{Slot: slot + watch(), Handler: watch(), End: 30 * time.Millisecond, Evicted: *evicted}
		return f
	})
}

func (b *rig) expectLedger(t *testing.T, when string, want ledger.Ledger) {
	t.Helper()
	if got := b.read(t).Spent(); got != want {
		t.Errorf("%s: ledger %+v, want %+v", when, got, want)
	}
}

func mustWrite(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLedger follows a job through a save, a death, an eviction, a replay and its commit.
func TestLedger(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		evicted := false
		c := b.store.Fresh(ours, "worker-1")
		keep(c, time.Minute, &evicted)
		time.Sleep(60 * time.Second)
		mustWrite(t, c.Save(t.Context(), Snapshot{State: []byte("a"), At: 50 * time.Second}))
		b.expectLedger(t, "after a save", ledger.Ledger{Useful: 50 * time.Second, Redone: 10 * time.Second, Overhead: 2 * time.Second})
		time.Sleep(20 * time.Second)
		mustWrite(t, c.Touch(t.Context(), Snapshot{}))
		b.expectLedger(t, "after a touch", ledger.Ledger{Useful: 50 * time.Second, Redone: 30 * time.Second, Overhead: 2 * time.Second})
		mustWrite(t, c.Save(t.Context(), Snapshot{State: []byte("a"), At: 80 * time.Second}))
		b.expectLedger(t, "after the same state again", ledger.Ledger{Useful: 50 * time.Second, Redone: 30 * time.Second,
			Overhead: 2 * time.Second})
		if got := b.read(t).NextWrite; got != time.Minute {
			t.Errorf("it writes again within %s, want a minute", got)
		}

		time.Sleep(45 * time.Second) // it dies 10 to 20 s after its last write
		second := ours
		second.Takeover = ledger.Takeover{Claimed: 40 * time.Second, Visibility: 30 * time.Second, RenewEvery: 10 * time.Second}
		second.NextWrite = 7 * time.Second
		c = b.acquire(t, second, "worker-2")
		after := ledger.Ledger{Useful: 50 * time.Second, Redone: 45 * time.Second, Overhead: 2 * time.Second, Exits: 1}
		b.expectLedger(t, "after a death", after)
		if got := b.read(t).NextWrite; got != second.NextWrite {
			t.Errorf("the next owner writes within %s, want %s", got, second.NextWrite)
		}

		keep(c, time.Minute, &evicted)
		time.Sleep(40 * time.Second)
		evicted = true
		mustWrite(t, c.Release(t.Context(), Snapshot{State: []byte("b"), At: 38 * time.Second}))
		after = ledger.Ledger{Useful: 88 * time.Second, Redone: 47 * time.Second, Overhead: 4*time.Second + 30*time.Millisecond, Evictions: 1,
			Exits: 1}
		b.expectLedger(t, "after an eviction", after)
		if got := b.read(t).NextWrite; got != 0 {
			t.Errorf("an open record has a next write within %s, want none", got)
		}

		evicted = false
		c = b.acquire(t, ours, "worker-3")
		keep(c, time.Minute, &evicted)
		time.Sleep(10 * time.Second)
		mustWrite(t, c.Poison(t.Context(), Snapshot{}, "no"))
		after.Redone, after.Overhead = 57*time.Second, 6*time.Second+60*time.Millisecond
		b.expectLedger(t, "when dead-lettered", after)
		_, err := b.store.Replay(t.Context(), ours, "spotctl", time.Time{}, true)
		mustWrite(t, err)
		after.Useful, after.Redone = 0, 145*time.Second
		b.expectLedger(t, "after a replay from scratch", after)
		if got := b.read(t).RunTime; got != 0 {
			t.Errorf("run time after a replay = %s, want 0", got)
		}

		c = b.acquire(t, ours, "worker-4")
		keep(c, time.Minute, &evicted)
		time.Sleep(100 * time.Second)
		mustWrite(t, c.Save(t.Context(), Snapshot{State: []byte("c"), At: 90 * time.Second}))
		time.Sleep(30 * time.Second)
		mustWrite(t, c.Commit(t.Context(), nil))
		after.Useful, after.Overhead = 130*time.Second, 8*time.Second+90*time.Millisecond
		b.expectLedger(t, "when done", after)
	})
}

// TestLedgerOfEndedClaims: an operator who ends the claim of a running job accounts for the
// time since its last write.
func TestLedgerOfEndedClaims(t *testing.T) {
	never := false
	for name, row := range map[string]struct {
		end  func(t *testing.T, b *rig) error
		want ledger.Ledger
	}{
		"cancelled": {func(t *testing.T, b *rig) error {
			_, err := b.store.Cancel(t.Context(), ours.ID, tool, "no", false)
			return err
		}, ledger.Ledger{Redone: 80 * time.Second, Overhead: 2 * time.Second}},
		"reopened": {func(t *testing.T, b *rig) error {
			_, err := b.store.Reopen(t.Context(), ours, tool)
			return err
		}, ledger.Ledger{Useful: 60 * time.Second, Redone: 15 * time.Second, Overhead: 2 * time.Second, Exits: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				c := b.store.Fresh(ours, "worker-1")
				keep(c, 30*time.Second, &never)
				time.Sleep(time.Minute)
				mustWrite(t, c.Save(t.Context(), Snapshot{State: []byte("a"), At: time.Minute}))
				time.Sleep(20 * time.Second)
				mustWrite(t, row.end(t, b))
				b.expectLedger(t, name, row.want)
			})
		})
	}
}

// TestRestoreIsOverhead: the time in which a handler reads its streamed state is not its
// work.
func TestRestoreIsOverhead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		never := false
		letters := strings.Repeat("a", 2*chunk) + strings.Repeat("b", 2*chunk)
		b.claimedLarge(t, letters)
		c := b.acquire(t, ours, "worker-2")
		found, err := c.Restore(t.Context())
		mustWrite(t, err)
		keep(c, time.Minute, &never)
		stream, err := found.Stream()
		mustWrite(t, err)
		time.Sleep(40 * time.Second)
		_, err = io.Copy(io.Discard, stream)
		mustWrite(t, err)
		mustWrite(t, stream.Close())
		time.Sleep(10 * time.Second)
		before := b.read(t).Spent()
		mustWrite(t, c.Commit(t.Context(), nil))
		before.Useful, before.Redone = before.Useful+before.Redone+10*time.Second, 0
		before.Overhead += 42*time.Second + 30*time.Millisecond
		b.expectLedger(t, "when done", before)
	})
}

// TestLedgerIsNotTrusted: a value that cannot be read counts as none, and does not
// keep the record from being read.
func TestLedgerIsNotTrusted(t *testing.T) {
	for _, key := range []string{"useful", "redone", "overhead", "evictions", "exits", "nextwrite"} {
		for _, bad := range []string{"-1", "many", "1.5", "99999999999999999999"} {
			m := plain(new(fullRecord()).metadata())
			m[key] = bad
			got, err := parse("job-1", pointers(m))
			if err != nil || got.Version != Version || got.Ledger != (ledger.Ledger{}) || got.NextWrite != 0 {
				t.Errorf("%s %s: %+v, %v, want it to count as none", key, bad, got.Ledger, err)
			}
		}
	}
}
