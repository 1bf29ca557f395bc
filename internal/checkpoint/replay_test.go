package checkpoint

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/checkpoint/runs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

var givenUpAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A row is a record that a tool finds; acts says whether it may be replayed or
// cancelled.
var operated = map[string]struct {
	found Record
	acts  bool
	err   error
}{
	"poison": {Record{Status: Poison, Failures: 5, FailuresTotal: 20, Breaks: 3, Peak: 0.5, ChargedExits: 2, EarlyExits: 4,
		RunTime: time.Hour, Interruptions: 3, EndedAt: givenUpAt, Reason: "no"}, true, nil},
	"replayed, unclaimed":  {Record{Status: Open, EndedAt: givenUpAt}, true, nil},
	"open":                 {Record{Status: Open, Failures: 2}, false, nil},
	"running":              {Record{Status: Running}, false, nil},
	"done":                 {Record{Status: Done, EndedAt: givenUpAt}, false, nil},
	"cancelled":            {Record{Status: Cancelled, EndedAt: givenUpAt}, false, nil},
	"poison of other work": {Record{Status: Poison, Kind: "other", EndedAt: givenUpAt}, false, ErrOtherWork},
	"newer version":        {Record{Status: Poison, unknown: map[string]string{"failures": "-1"}}, false, ErrUnknownFormat},
}

// eachOperated runs a test on each record, with a state in it.
func eachOperated(t *testing.T, test func(t *testing.T, b *rig, before Record, acts bool, err error)) {
	for name, row := range operated {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				r := row.found
				r.PayloadHash, r.MessageID, r.StateHash, r.StateSize = ours.PayloadHash, ours.MessageID, hashOf([]byte("theirs")), 6
				if r.Kind == "" {
					r.Kind = ours.Kind
				}
				test(t, b, b.seed(t, r, "theirs"), row.acts, row.err)
			})
		})
	}
}

// TestReplay: a replay opens a job that was given up, with its state and its history, and
// touches nothing else.
func TestReplay(t *testing.T) {
	eachOperated(t, func(t *testing.T, b *rig, before Record, acts bool, wantErr error) {
		was, err := b.store.Replay(t.Context(), asked, tool, givenUpAt, false)
		if !errors.Is(err, wantErr) || err == nil && (was.ETag != before.ETag || was.GivenUp() != acts) {
			t.Fatalf("Replay = %+v, %v, want the record as it was, or %v", was, err, wantErr)
		}
		after := b.read(t)
		if b.body(t) != "theirs" {
			t.Errorf("body = %q, want the state that was there", b.body(t))
		}
		if before.Status != Poison || !acts {
			if after.ETag != before.ETag {
				t.Errorf("record = %+v, want it untouched", after)
			}
			return
		}
		want := before
		want.Status, want.Owner, want.Failures, want.ChargedExits, want.EarlyExits, want.RunTime = Open, tool, 0, 0, 0, 0
		want.FailuresTotal, want.Breaks, want.Peak = 0, 0, 0
		want.Token, want.Write, want.ETag = after.Token, after.Write, after.ETag
		if !sameRecord(after, want) || after.Token == before.Token || !after.GivenUp() {
			t.Errorf("record = %+v\nwant     %+v", after, want)
		}
		if c := b.acquire(t, other, "worker-2"); c.Record().GivenUp() || c.Record().Generation != before.Generation+1 {
			t.Errorf("record once claimed = %+v, want it running", c.Record())
		}
	})
}

// TestReplayFromScratch: the state goes, also where a replay was cut short
// before its message was put.
func TestReplayFromScratch(t *testing.T) {
	eachOperated(t, func(t *testing.T, b *rig, before Record, acts bool, wantErr error) {
		if _, err := b.store.Replay(t.Context(), asked, tool, givenUpAt, true); !errors.Is(err, wantErr) {
			t.Fatalf("Replay = %v, want %v", err, wantErr)
		}
		after := b.read(t)
		if !acts && (after.ETag != before.ETag || b.body(t) != "theirs") {
			t.Errorf("record = %+v, want it untouched", after)
		}
		if acts && (after.Status != Open || after.HasState() || b.body(t) != "" || !after.GivenUp()) {
			t.Errorf("record = %+v with body %q, want it open without a state", after, b.body(t))
		}
	})
}

// TestAgain: a job that has ended is opened without anything but its history; a replay or a purge of a
// message from before leaves it alone, and a worker that has one is told that its run is over.
func TestAgain(t *testing.T) {
	eachOperated(t, func(t *testing.T, b *rig, before Record, _ bool, wantErr error) {
		d := asked
		d.Kind, d.PayloadHash, d.Again = "new", "new", Newest
		was, again, err := b.store.Again(t.Context(), d, tool)
		if !before.Status.Final() || before.Version == 0 {
			if err == nil || errors.Is(wantErr, ErrUnknownFormat) != errors.Is(err, ErrUnknownFormat) ||
				before.Version != 0 && !errors.Is(err, ErrNotEnded) || b.read(t).ETag != before.ETag {
				t.Errorf("Again = %v, want a refusal", err)
			}
			return
		}
		after := b.read(t)
		want := Record{ID: before.ID, Version: Version, Status: Open, Kind: "new", PayloadHash: "new", Generation: before.Generation + 1,
			Again: before.Generation + 1, CreatedAt: before.CreatedAt, Owner: tool, Ledger: before.Ledger, Log: before.Log,
			Token: after.Token, Write: after.Write, ETag: after.ETag, Runs: after.Runs}
		last, told := after.Runs.Last(after.Again)
		if err != nil || was.ETag != before.ETag || again != after.Again || !sameRecord(after, want) || b.body(t) != "" ||
			!told || last.Outcome != runs.Again || last.Worker != tool {
			t.Fatalf("Again = %d, %v: record %+v with body %q\nwant %+v", again, err, after, b.body(t), want)
		}
		if was, repeated, err := b.store.Again(t.Context(), d, tool); err != nil || repeated != again || was.ETag != after.ETag {
			t.Errorf("Again, repeated = %d, %v, want %d and no write", repeated, err, again)
		}
		_, replayErr := b.store.Replay(t.Context(), asked, tool, givenUpAt, true)
		_, purgeErr := b.store.Purge(t.Context(), asked, tool, "why")
		if r := b.read(t); replayErr != nil || purgeErr != nil || r.ETag != after.ETag {
			t.Errorf("replay = %v, purge = %v of the run before: record %+v, want it untouched", replayErr, purgeErr, r)
		}
		d.MessageID, d.Again = other.MessageID, again
		c := b.acquire(t, d, "worker-2")
		if _, _, err := b.store.Again(t.Context(), d, tool); !errors.Is(err, ErrNotEnded) || c.Record().Claims() != 1 {
			t.Errorf("Again of a claimed job = %v, want ErrNotEnded", err)
		}
	})
}

// TestCancel: a job that was given up is cancelled, and no other record changes.
func TestCancel(t *testing.T) {
	eachOperated(t, func(t *testing.T, b *rig, before Record, acts bool, wantErr error) {
		was, err := b.store.Purge(t.Context(), asked, tool, "purged")
		if !errors.Is(err, wantErr) || err == nil && (was.ETag != before.ETag || was.GivenUp() != acts) {
			t.Fatalf("CallOff = %+v, %v, want the record as it was, or %v", was, err, wantErr)
		}
		after := b.read(t)
		if !acts && (after.ETag != before.ETag || b.body(t) != "theirs") {
			t.Errorf("record = %+v, want it untouched", after)
		}
		if acts && (after.Status != Cancelled || after.Reason != "purged" || after.HasState() || b.body(t) != "") {
			t.Errorf("record = %+v with body %q, want it cancelled and empty", after, b.body(t))
		}
	})
}

// A record that is gone is made again; blocks that were staged for it are no
// hindrance.
func TestReplayCreates(t *testing.T) {
	for name, act := range map[string]func(t *testing.T, b *rig) (Record, error){
		"replay": func(t *testing.T, b *rig) (Record, error) {
			return b.store.Replay(t.Context(), asked, tool, givenUpAt, false)
		},
		"call off": func(t *testing.T, b *rig) (Record, error) {
			return b.store.Purge(t.Context(), asked, tool, "purged")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				known := blocks.Set{}
				to := b.store.target(ours.ID, "")
				if _, err := b.store.upload(t.Context(), ours.ID, to, strings.NewReader("a piece of a state"), &known, blocks.Base{}, 0); err != nil {
					t.Fatal(err)
				}
				if was, err := act(t, b); err != nil || was.Version != 0 {
					t.Fatalf("found %+v, %v, want nothing", was, err)
				}
				after := b.read(t)
				want := map[string]Status{"replay": Open, "call off": Cancelled}[name]
				if after.Status != want || after.Kind != ours.Kind || after.PayloadHash != ours.PayloadHash || after.EndedAt.IsZero() {
					t.Errorf("record = %+v, want it %s, of that work", after, want)
				}
			})
		})
	}
}

// TestReplayOfOddRecords: a job that was given up without a time gets one, since a replay that is
// cut short is told by it; from scratch nothing of the progress is left; and a replay that has
// nothing more to remove writes nothing.
func TestReplayOfOddRecords(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.seed(t, Record{Status: Poison, Kind: ours.Kind, PayloadHash: ours.PayloadHash, StateHash: hashOf([]byte("x")), StateSize: 1,
			Fraction: 0.5, Text: "half"}, "x")
		if _, err := b.store.Replay(t.Context(), asked, tool, time.Time{}, true); err != nil {
			t.Fatal(err)
		}
		after := b.read(t)
		if !after.GivenUp() || time.Since(after.EndedAt) > time.Second || after.Fraction != 0 || after.Text != "" {
			t.Errorf("record = %+v, want it open, given up now, without progress", after)
		}
		if _, err := b.store.Replay(t.Context(), asked, tool, time.Time{}, true); err != nil || b.read(t).ETag != after.ETag {
			t.Errorf("a second replay from scratch = %v, and it wrote, want nothing written", err)
		}
	})
}

// TestCancelWaitingAndRunning: a job without a record is cancelled if that is asked for, and the
// time of an owner until then is lost.
func TestCancelWaitingAndRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		if _, err := b.store.Cancel(t.Context(), ours.ID, tool, "no", false); !errors.Is(err, ErrNotFound) {
			t.Errorf("Cancel of no record = %v, want ErrNotFound", err)
		}
		if _, err := b.store.CheckReopen(t.Context(), asked); !errors.Is(err, ErrNotFound) {
			t.Errorf("CheckReopen of no record = %v, want ErrNotFound", err)
		}
		if was, err := b.store.Cancel(t.Context(), ours.ID, tool, "no", true); err != nil || was.Version != 0 {
			t.Fatalf("Cancel = %+v, %v, want that there was none", was, err)
		}
		if r := b.read(t); r.Status != Cancelled || r.Reason != "no" || time.Since(r.CreatedAt) > time.Second {
			t.Errorf("record = %+v, want it cancelled, made now", r)
		}
	})
	for name, row := range map[string]struct {
		r      Record
		redone time.Duration
	}{
		"an owner that reports": {Record{Status: Running, Generation: 2, NextWrite: time.Minute}, 20 * time.Second},
		"an owner that is late": {Record{Status: Running, Generation: 2, NextWrite: 5 * time.Second}, 5 * time.Second},
		"a job that waits":      {Record{Status: Open, Generation: 2, NextWrite: time.Minute}, 0},
	} {
		inBubble(t, func(t *testing.T, b *rig) {
			b.seed(t, row.r, "")
			time.Sleep(20 * time.Second)
			if was, err := b.store.Cancel(t.Context(), ours.ID, tool, "no", false); err != nil || was.Status != row.r.Status {
				t.Fatalf("%s: Cancel = %+v, %v", name, was, err)
			}
			if r := b.read(t); r.Status != Cancelled || r.Ledger.Redone != row.redone || r.NextWrite != 0 {
				t.Errorf("%s: record is %s, %s redone, next write in %s; want %s redone and no next write", name, r.Status, r.Ledger.Redone,
					r.NextWrite, row.redone)
			}
		})
	}
}

// A lost reply changes nothing: a replay has its effect once.
func TestReplayInTrouble(t *testing.T) {
	for name, tr := range map[string]trouble{
		"request lost":      {1, 0, storage.Fault{DropRequest: true}},
		"all requests lost": {tries, 0, storage.Fault{DropRequest: true}},
		"reply lost":        {1, 0, storage.Fault{DropReply: true}},
		"all replies lost":  {tries, 0, storage.Fault{DropReply: true}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				before := b.seed(t, Record{Status: Poison, Kind: ours.Kind, PayloadHash: ours.PayloadHash, EndedAt: givenUpAt, Failures: 5}, "")
				b.cause(tr)
				was, err := b.store.Replay(t.Context(), asked, tool, givenUpAt, false)
				if err != nil || was.ETag != before.ETag || was.Status != Poison {
					t.Fatalf("Replay = %+v, %v, want the record as it was", was, err)
				}
				if after := b.read(t); after.Status != Open || after.Failures != 0 {
					t.Errorf("record = %+v, want it open", after)
				}
			})
		})
	}
}

// A worker that claims the job while it is being cancelled keeps it.
func TestCancelMeetsAClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.seed(t, Record{Status: Open, Kind: ours.Kind, PayloadHash: ours.PayloadHash, EndedAt: givenUpAt}, "")
		b.before(1, func() { b.acquire(t, other, "worker-2") })
		was, err := b.store.Purge(t.Context(), asked, tool, "purged")
		if err != nil || was.Status != Running || was.GivenUp() || b.read(t).Status != Running {
			t.Errorf("CallOff = %+v, %v, want the job left running", was, err)
		}
	})
}

// A job that was replayed, claimed and released again is active: a poison
// message of before, purged or replayed late, must not end it or change it.
func TestCancelAfterAClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.seed(t, Record{Status: Poison, Kind: ours.Kind, PayloadHash: ours.PayloadHash, MessageID: ours.MessageID, EndedAt: givenUpAt}, "")
		if _, err := b.store.Replay(t.Context(), asked, tool, givenUpAt, false); err != nil {
			t.Fatal(err)
		}
		if err := b.acquire(t, ours, "worker-1").Release(t.Context(), Snapshot{State: []byte("half"), Fraction: 0.5}); err != nil {
			t.Fatal(err)
		}
		released := b.read(t)
		if _, err := b.store.Purge(t.Context(), asked, tool, "purged"); err != nil {
			t.Fatal(err)
		}
		if after := b.read(t); after.Status != Open || after.ETag != released.ETag || b.body(t) != "half" {
			t.Errorf("record after a purge of an old poison message = %s with %q, want it untouched: open with its state", after.Status, b.body(t))
		}
	})
}
