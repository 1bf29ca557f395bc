package checkpoint

import (
	"errors"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/checkpoint/runs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// tool is who opens records in these tests.
const tool = "producer@desk"

// asked holds a tool's facts about the job: no message.
var asked = Delivery{ID: ours.ID, Kind: ours.Kind, PayloadHash: ours.PayloadHash}

func TestReopen(t *testing.T) {
	kind, hash, state := ours.Kind, ours.PayloadHash, hashOf([]byte("theirs"))
	for name, row := range map[string]struct {
		found  Record
		opened bool
		err    error
	}{
		"running": {Record{Status: Running, Kind: kind, PayloadHash: hash, Generation: 3, ChargedExits: 1, Failures: 2,
			StateHash: state, StateSize: 6}, true, nil},
		"open":                       {Record{Status: Open, Kind: kind, PayloadHash: hash}, false, nil},
		"done":                       {Record{Status: Done, Kind: kind, PayloadHash: hash}, false, nil},
		"poison":                     {Record{Status: Poison, Kind: kind, PayloadHash: hash, Reason: "no"}, false, nil},
		"cancelled before any claim": {Record{Status: Cancelled}, false, nil},
		"other kind":                 {Record{Status: Running, Kind: "other", PayloadHash: hash}, false, ErrOtherWork},
		"other payload":              {Record{Status: Running, Kind: kind, PayloadHash: "other"}, false, ErrOtherWork},
		"done, of other work":        {Record{Status: Done, Kind: "other", PayloadHash: hash}, false, ErrOtherWork},
		"unknown status":             {Record{Status: "paused", Kind: kind, PayloadHash: hash}, false, ErrUnknownFormat},
		"newer version":              {Record{Status: Running, unknown: map[string]string{"failures": "-1"}}, false, ErrUnknownFormat},
		"running, keys of a newer one": {Record{Status: Running, Kind: kind, PayloadHash: hash, unknown: map[string]string{"priority": "7"}},
			true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				row.found.MessageID = other.MessageID
				before := b.seed(t, row.found, "theirs")
				b.ResetCounts()
				if _, err := b.store.CheckReopen(t.Context(), asked); !errors.Is(err, row.err) {
					t.Errorf("CanOpen = %v, want %v", err, row.err)
				}
				was, err := b.store.Reopen(t.Context(), asked, tool)
				if !errors.Is(err, row.err) || err == nil && (was.ETag != before.ETag || was.Status != before.Status) {
					t.Errorf("Open = %+v, %v, want the record as it was, or %v", was, err, row.err)
				}
				want := map[string]int64{storage.OpGetBlobProperties: 2}
				if row.opened {
					want[storage.OpSetBlobMetadata] = 1
				}
				if got := b.Counts(); !maps.Equal(got, want) {
					t.Errorf("calls of CanOpen and Open = %v, want %v", got, want)
				}
				after := b.read(t)
				if row.opened {
					b.expectOpened(t, before)
				} else if after.ETag != before.ETag {
					t.Errorf("record = %+v, want it untouched", after)
				}
				if b.body(t) != "theirs" {
					t.Errorf("body = %q, want the one that was there", b.body(t))
				}
			})
		})
	}
}

// expectOpened demands that the record is as before, but open and written by
// somebody with a token of his own.
func (b *rig) expectOpened(t *testing.T, before Record) {
	t.Helper()
	after := b.read(t)
	if after.Token == before.Token || after.Token == "" || after.Write == 0 {
		t.Errorf("token %q, write %d after %q: want a fresh one", after.Token, after.Write, before.Token)
	}
	want := before
	want.Status, want.Owner = Open, tool
	want.Ledger.Exits++ // the claim that was ended
	want.Runs = after.Runs
	if run, ok := after.Runs.Last(before.Generation); !before.ClaimedAt.IsZero() && (!ok || run.Outcome != runs.Lost || run.Took <= 0) {
		t.Errorf("the timeline is %q, want that the last delivery was lost", after.Runs)
	}
	want.Token, want.Write = after.Token, after.Write
	want.ETag, want.ModifiedAt, want.ReadAt = after.ETag, after.ModifiedAt, after.ReadAt
	if !sameRecord(after, want) {
		t.Errorf("record = %+v\nwant     %+v", after, want)
	}
}

// sameRecord compares two records by their stored content.
func sameRecord(a, b Record) bool {
	equal := func(x, y *string) bool { return *x == *y }
	return a.ETag == b.ETag && a.Size == b.Size && maps.EqualFunc(a.metadata(), b.metadata(), equal)
}

func TestReopenOfNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		if _, err := b.store.Reopen(t.Context(), asked, tool); !errors.Is(err, ErrNotFound) {
			t.Errorf("Open without a record = %v, want ErrNotFound", err)
		}
		if n := b.Counts()[storage.OpSetBlobMetadata]; n != 0 {
			t.Errorf("%d writes, want none", n)
		}
	})
}

// before runs do before each of the next n writes. Writes by do do not count.
func (b *rig) before(n int, do func()) {
	doing := false
	b.link.mu.Lock()
	defer b.link.mu.Unlock()
	b.link.step = func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if r.Method == http.MethodPut && !doing && n > 0 {
			n--
			doing = true
			do()
			doing = false
		}
		return send()
	}
}

// If an owner that is alive writes between read and write, both are repeated, a
// bounded number of times.
func TestReopenMeetsALivingOwner(t *testing.T) {
	for name, row := range map[string]struct {
		times int
		act   func(t *testing.T, b *rig, owner *Claim) error
		was   Status
		err   error
	}{
		"it saves": {3, func(t *testing.T, _ *rig, c *Claim) error {
			return c.Save(t.Context(), Snapshot{State: []byte(uuid.NewString())})
		}, Running, nil},
		"it touches": {maxRepeats - 1, func(t *testing.T, _ *rig, c *Claim) error {
			return c.Touch(t.Context(), Snapshot{Fraction: 0.5})
		}, Running, nil},
		"it commits": {1, func(t *testing.T, _ *rig, c *Claim) error { return c.Commit(t.Context(), []byte("result")) }, Done, nil},
		"it gives the job back": {1, func(t *testing.T, _ *rig, c *Claim) error {
			return c.Release(t.Context(), Snapshot{})
		}, Open, nil},
		"its message is claimed again": {1, func(t *testing.T, b *rig, _ *Claim) error {
			b.acquire(t, ours, "worker-2")
			return nil
		}, "", ErrReclaimed},
		"its record is removed": {1, func(t *testing.T, b *rig, _ *Claim) error { b.remove(t); return nil }, "", ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				owner := b.claimed(t)
				b.before(row.times, func() {
					if err := row.act(t, b, owner); err != nil {
						t.Errorf("the owner: %v", err)
					}
				})
				was, err := b.store.Reopen(t.Context(), asked, tool)
				if was.Status != row.was || !errors.Is(err, row.err) {
					t.Errorf("Open = %s, %v, want %q, %v", was.Status, err, row.was, row.err)
				}
				if row.was == Running {
					b.expectOpened(t, was)
				}
			})
		})
	}
}

func TestReopenGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		owner := b.claimed(t)
		b.before(maxRepeats, func() {
			if err := owner.Touch(t.Context(), Snapshot{}); err != nil {
				t.Errorf("the owner: %v", err)
			}
		})
		begun := time.Now()
		if _, err := b.store.Reopen(t.Context(), asked, tool); err == nil || time.Since(begun) > time.Minute {
			t.Errorf("Open against an owner that never stops = %v after %s, want an error within a minute", err, time.Since(begun))
		}
		if err := owner.Save(t.Context(), Snapshot{}); err != nil {
			t.Errorf("the owner's next save: %v", err)
		}
	})
}

// A lost reply changes nothing: an opening has its effect once, and reports the record
// that it found.
func TestReopenInTrouble(t *testing.T) {
	for name, tr := range map[string]trouble{
		"request lost":      {1, 0, storage.Fault{DropRequest: true}},
		"all requests lost": {tries, 0, storage.Fault{DropRequest: true}},
		"reply lost":        {1, 0, storage.Fault{DropReply: true}},
		"all replies lost":  {tries, 0, storage.Fault{DropReply: true}},
		"busy":              {tries, 0, storage.Fault{Refuse: storage.ServerBusy(0)}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				b.claimed(t)
				before := b.read(t)
				b.cause(tr)
				if was, err := b.store.Reopen(t.Context(), asked, tool); err != nil || was.Token != before.Token {
					t.Fatalf("Open = %+v, %v, want the record as it was", was, err)
				}
				b.expectOpened(t, before)
			})
		})
	}
	for _, when := range []lateness{afterRepeat, beforeRead, afterRead} {
		inBubble(t, func(t *testing.T, b *rig) {
			b.claimed(t)
			before := b.read(t)
			b.link.late(when)
			if was, err := b.store.Reopen(t.Context(), asked, tool); err != nil || was.Token != before.Token {
				t.Fatalf("late %d: Open = %+v, %v, want the record as it was", when, was, err)
			}
			b.expectOpened(t, before)
		})
	}
}

func TestResultOf(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.claimed(t)
		if data, err := b.store.ResultOf(t.Context(), b.read(t)); err == nil {
			t.Errorf("ResultOf a job that runs = %q, want an error", data)
		}
		if err := c.Commit(t.Context(), []byte("result")); err != nil {
			t.Fatal(err)
		}
		for r, err := range b.store.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			if data, err := b.store.ResultOf(t.Context(), r); err != nil || string(data) != "result" {
				t.Errorf("ResultOf = %q, %v, want the result", data, err)
			}
		}
	})
}

// However a commit and an opening meet, one of them has its effect, and both
// sides know which.
func TestReopenRacesACommit(t *testing.T) {
	seen := map[Status]int{}
	for offset := range 60 {
		inBubble(t, func(t *testing.T, b *rig) {
			owner := b.claimed(t)
			b.OnCall(func(storage.Call) storage.Fault {
				return storage.Fault{Before: 7 * time.Millisecond, After: 5 * time.Millisecond}
			})
			committed := make(chan error)
			go func() {
				time.Sleep(time.Duration(offset) * time.Millisecond)
				committed <- owner.Commit(t.Context(), []byte("result"))
			}()
			time.Sleep(20 * time.Millisecond)
			was, err := b.store.Reopen(t.Context(), asked, tool)
			commitErr := <-committed
			if err != nil {
				t.Fatalf("offset %d ms: Open = %v", offset, err)
			}
			seen[was.Status]++
			after := b.read(t).Status
			switch {
			case was.Status == Done && commitErr == nil && after == Done:
			case was.Status == Running && conflictIn(commitErr) != nil && after == Open:
			default:
				t.Errorf("offset %d ms: Open found it %s, Commit = %v, and now it is %s", offset, was.Status, commitErr, after)
			}
		})
	}
	if seen[Done] == 0 || seen[Running] == 0 {
		t.Errorf("outcomes = %v, want both", seen)
	}
}
