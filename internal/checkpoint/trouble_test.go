package checkpoint

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// cutBodies cuts the connections of the next reads before the first byte of their bodies.
func (b *rig) cutBodies(reads int64) {
	var cut atomic.Int64
	b.OnCall(func(c storage.Call) storage.Fault {
		return storage.Fault{CutBody: c.Operation == storage.OpGetBlob && cut.Add(1) <= reads}
	})
}

// TestStateIsCutOff: a body that ends early is no damage. A state in one piece is an error, after which
// the caller tries again; a state in blocks is read further.
func TestStateIsCutOff(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.claimed(t)
		c := b.acquire(t, ours, "worker-2")
		b.cutBodies(100)
		if s, err := c.Restore(t.Context()); err == nil || errors.Is(err, ErrDamaged) {
			t.Errorf("Restore of a state that was cut off = %+v, %v, want an error that a retry may cure", s, err)
		}
		b.cutBodies(0)
		if s, err := c.Restore(t.Context()); err != nil || string(s.State) != "state 1" {
			t.Errorf("Restore afterwards = %+v, %v, want state 1", s, err)
		}
	})
	inBubble(t, func(t *testing.T, b *rig) {
		r := restore(t, b.claimedLarge(t, severalReads))
		b.cutBodies(20)
		readRest(t, r, severalReads, 0)
	})
}

// TestStateIsArchived: a blob that somebody moved to the archive cannot be read again soon: reading its
// state ends with the refusal, and waits for nothing.
func TestStateIsArchived(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		r := restore(t, b.claimedLarge(t, severalReads))
		b.OnCall(func(storage.Call) storage.Fault {
			return storage.Fault{Refuse: &storage.Error{Status: http.StatusConflict, Code: string(bloberror.BlobArchived)}}
		})
		begun := time.Now()
		if _, err := io.Copy(io.Discard, r); !bloberror.HasCode(err, bloberror.BlobArchived) || time.Since(begun) > time.Minute {
			t.Errorf("reading = %v after %s, want %s at once", err, time.Since(begun), bloberror.BlobArchived)
		}
	})
}

// TestConflictDuringAnOutage: the owner of a record that was acquired by somebody else, while storage is
// not reachable, learns of the conflict, and takes nothing for damage.
func TestConflictDuringAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		r := restore(t, b.claimedLarge(t, severalReads))
		b.writeAsOperator(t, func(*Record) {})
		b.cause(trouble{reads: 3 * tries})
		_, err := io.Copy(io.Discard, r)
		if conflict := conflictIn(err); conflict == nil || errors.Is(err, ErrDamaged) {
			t.Errorf("reading = %v, want a conflict", err)
		}
	})
}

// TestWriteInDoubtBeforeARead: a read of the state first settles a write in doubt. If it cannot, it fails
// and leaves the claim usable.
func TestWriteInDoubtBeforeARead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.claimed(t)
		b.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropReply: true} })
		if err := c.Save(t.Context(), Snapshot{State: []byte("state 2"), Version: 2}); err == nil {
			t.Fatal("Save without answers = <nil>, want an error")
		}
		if s, err := c.Restore(t.Context()); err == nil {
			t.Errorf("Restore without answers = %+v, want an error", s)
		}
		b.OnCall(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if s, err := c.Restore(ctx); err != nil || string(s.State) != "state 2" {
			t.Errorf("Restore afterwards = %+v, %v, want state 2, which was stored", s, err)
		}
	})
}

// TestFirstWriteInDoubt: a record may exist once a create was sent, and a check of a record that does
// not exist finds no other owner.
func TestFirstWriteInDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.store.Fresh(ours, "worker-1")
		if err := c.Check(t.Context()); err != nil || c.MayExist(t.Context()) {
			t.Errorf("before the first write: Check = %v, may exist: %t, want neither", err, c.MayExist(t.Context()))
		}
		b.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropRequest: true} })
		if err := c.Touch(t.Context(), Snapshot{}); err == nil || c.Exists() || !c.MayExist(t.Context()) {
			t.Errorf("after a lost create: %v, exists: %t, may exist: %t, want an error, and that it may", err, c.Exists(), c.MayExist(t.Context()))
		}
	})
}

// TestWritesGiveUp: a write that never takes effect, though storage answers reads, ends with the last
// error after a bounded number of tries.
func TestWritesGiveUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.claimed(t)
		b.ResetCounts()
		b.cause(trouble{writes: 1000, fault: storage.Fault{DropRequest: true}})
		err := c.Save(t.Context(), Snapshot{State: []byte("state 2")})
		if err == nil || !strings.Contains(err.Error(), "gave up after 8 repeats") {
			t.Errorf("Save = %v, want that it gives up", err)
		}
		b.OnCall(nil)
		if err := c.Save(t.Context(), Snapshot{State: []byte("state 2")}); err != nil || b.body(t) != "state 2" {
			t.Errorf("Save afterwards = %v, body %q", err, b.body(t))
		}
	})
}

// TestNothingAfterTheEnd: no write follows the end of a claim, not even a touch, and a second try of the
// same ending is none.
func TestNothingAfterTheEnd(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(ctx context.Context, c *Claim) error
		want Ruling
	}{
		"release": {func(ctx context.Context, c *Claim) error { return c.Release(ctx, Snapshot{}) }, PutBack},
		"commit":  {func(ctx context.Context, c *Claim) error { return c.Commit(ctx, nil) }, Finish},
	} {
		for after, do := range map[string]func(ctx context.Context, c *Claim) error{
			"touch": func(ctx context.Context, c *Claim) error { return c.Touch(ctx, Snapshot{}) },
			"save":  func(ctx context.Context, c *Claim) error { return c.Save(ctx, Snapshot{State: []byte("late")}) },
		} {
			inBubble(t, func(t *testing.T, b *rig) {
				c := b.claimed(t)
				must(t, row.end(t.Context(), c))
				ended := b.read(t)
				if err := row.end(t.Context(), c); err != nil {
					t.Errorf("second %s = %v, want no error", name, err)
				}
				if conflict := conflictIn(do(t.Context(), c)); conflict == nil || conflict.Ruling != row.want {
					t.Errorf("%s after a %s = %v, want %s", after, name, conflict, row.want)
				}
				if b.read(t).ETag != ended.ETag {
					t.Errorf("%s after a %s changed the record", after, name)
				}
			})
		}
	}
}

// TestCleanEndsClearExits: each clean end resets the unclean exits in a row, and a new output does.
func TestCleanEndsClearExits(t *testing.T) {
	outputs := list("a", 1)
	for name, do := range map[string]func(ctx context.Context, c *Claim) error{
		"commit":  func(ctx context.Context, c *Claim) error { return c.Commit(ctx, nil) },
		"release": func(ctx context.Context, c *Claim) error { return c.Release(ctx, Snapshot{}) },
		"break":   func(ctx context.Context, c *Claim) error { return c.Break(ctx, Snapshot{Fraction: 1}) },
		"fail":    func(ctx context.Context, c *Claim) error { return c.Fail(ctx, Snapshot{}, "no") },
		"output": func(ctx context.Context, c *Claim) error {
			c.SetFacts(func(f Facts) Facts { f.Outputs = outputs; return f })
			return c.Touch(ctx, Snapshot{Fraction: 1})
		},
	} {
		inBubble(t, func(t *testing.T, b *rig) {
			b.seed(t, Record{Status: Open, Generation: 1, ChargedExits: 2, EarlyExits: 3}, "")
			c := b.acquire(t, ours, "worker-1")
			if r := b.read(t); r.UncleanExits() != 5 {
				t.Fatalf("unclean exits at the claim = %d, want 5", r.UncleanExits())
			}
			must(t, do(t.Context(), c))
			r := b.read(t)
			if r.UncleanExits() != 0 || r.Progressed != (name == "output") {
				t.Errorf("after a %s: %d unclean exits, progress %t, want none", name, r.UncleanExits(), r.Progressed)
			}
			if (name == "break" || name == "output") && r.Fraction != 1 {
				t.Errorf("after a %s: fraction %g, want 1", name, r.Fraction)
			}
		})
	}
}

// TestReleaseOfOutputsAlone: a job without a record and a state that has stored outputs leaves a record
// with their list. Without them it leaves none.
func TestReleaseOfOutputsAlone(t *testing.T) {
	for _, outputs := range []Outputs{{}, list("a", 1)} {
		inBubble(t, func(t *testing.T, b *rig) {
			c := b.store.Fresh(ours, "worker-1")
			c.SetFacts(func(f Facts) Facts { f.Outputs = outputs; return f })
			must(t, c.Release(t.Context(), Snapshot{}))
			if records := len(b.Blobs(recordsName)); records != outputs.Files || records > 0 && b.read(t).Outputs != outputs {
				t.Errorf("%d records after a release with %d outputs", records, outputs.Files)
			}
		})
	}
}

// TestReopenedRecordExpectsNoWrite: the record of a dead owner names no time of a next write.
func TestReopenedRecordExpectsNoWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.seed(t, Record{Status: Running, Kind: ours.Kind, PayloadHash: ours.PayloadHash, Generation: 1, NextWrite: time.Minute}, "")
		_, err := b.store.Reopen(t.Context(), ours, tool)
		must(t, err)
		if r := b.read(t); r.Status != Open || r.NextWrite != 0 || r.Ledger.Exits != 1 {
			t.Errorf("record = %s, next write in %s, %d exits; want open, none, 1", r.Status, r.NextWrite, r.Ledger.Exits)
		}
	})
}

// TestStreamBehindAWrite: a restored stream that is opened while a write is in flight ends with its
// context, and returns why.
func TestStreamBehindAWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.claimedLarge(t, severalReads)
		stopped := errors.New("stopped")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, stopped)
		defer cancel()
		s, err := c.Restore(ctx)
		must(t, err)
		unlock, err := c.owned.lock(t.Context())
		must(t, err)
		defer unlock()
		if r, err := s.Stream(); !errors.Is(err, stopped) {
			t.Errorf("stream behind a write = %v, %v, want why its context ended", r, err)
		}
	})
}
