package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// operation is something that needs storage. prepare makes its subject, and returns it. It may
// be repeated after an error.
type operation struct {
	name    string
	prepare func(t *testing.T, b *rig) func(ctx context.Context) error
}

// onClaim are the operations of a claim, which save the state next.
func onClaim(next Snapshot) map[string]func(ctx context.Context, c *Claim) error {
	return map[string]func(ctx context.Context, c *Claim) error{
		"Save":    func(ctx context.Context, c *Claim) error { return c.Save(ctx, next) },
		"Touch":   func(ctx context.Context, c *Claim) error { return c.Touch(ctx, next) },
		"Commit":  func(ctx context.Context, c *Claim) error { return c.Commit(ctx, []byte("result")) },
		"Release": func(ctx context.Context, c *Claim) error { return c.Release(ctx, next) },
		"Fail":    func(ctx context.Context, c *Claim) error { return c.Fail(ctx, next, "no luck") },
		"Break":   func(ctx context.Context, c *Claim) error { return c.Break(ctx, next) },
		"Poison":  func(ctx context.Context, c *Claim) error { return c.Poison(ctx, next, "never") },
		"Check":   func(ctx context.Context, c *Claim) error { return c.Check(ctx) },
		"Restore": func(ctx context.Context, c *Claim) error { return drained(c.OpenState(ctx)) },
	}
}

// ofClaim are the operations of a claim, on a record with a small and with a large state.
func ofClaim() (all []operation) {
	for size, states := range map[string][3]string{
		"small":     {"1", "22", "333"},
		"large":     {string(large("ab")), string(large("abc")), string(large("xbcd"))},
		"growing":   {"1", "22", string(large("abc"))},
		"shrinking": {string(large("ab")), string(large("abc")), "333"},
	} {
		for name, do := range onClaim(asReported(states[2])) {
			if name != "Save" && (size == "growing" || size == "shrinking") {
				continue // nothing new
			}
			all = append(all, operation{name + " of a " + size + " state", func(t *testing.T, b *rig) func(context.Context) error {
				before := b.store.Fresh(ours, "worker-0")
				must(t, before.Save(t.Context(), asReported(states[0])))
				must(t, before.Save(t.Context(), asReported(states[1])))
				must(t, before.Release(t.Context(), Snapshot{}))
				c := b.acquire(t, ours, "worker-1")
				return func(ctx context.Context) error { return do(ctx, c) }
			}})
		}
	}
	return all
}

// drained reads a state to its end.
func drained(r io.ReadCloser, err error) error {
	if err != nil {
		return err
	}
	if r == nil {
		return errors.New("there is no state")
	}
	n, err := io.Copy(io.Discard, r)
	if err == nil && n == 0 {
		err = errors.New("the state is empty")
	}
	return errors.Join(err, r.Close())
}

// effect returns the record after an operation.
func (b *rig) effect(t *testing.T) string {
	t.Helper()
	if len(b.Blobs(recordsName)) == 0 {
		return "no record"
	}
	r := b.read(t)
	return fmt.Sprintf("%s generation %d, %d failures, %d of %d interruptions, %q at %g, state %d in %d of version %d: %s", r.Status,
		r.Generation, r.FailuresTotal, r.Breaks, r.Interruptions, r.Reason,
		r.Fraction, r.StateSize, r.StateBlocks, r.StateVersion, summary(b.body(t)))
}

// ofStore are the operations without a claim, and operations that begin a claim.
func ofStore() (all []operation) {
	open := Record{Status: Open, Kind: ours.Kind, PayloadHash: ours.PayloadHash, Generation: 1}
	with := func(status Status) Record {
		r := open
		r.Status, r.MessageID, r.EndedAt = status, "m-0", noon
		return r
	}
	add := func(name string, seed *Record, do func(ctx context.Context, s *Store) error) {
		all = append(all, operation{name, func(t *testing.T, b *rig) func(context.Context) error {
			if seed != nil {
				b.seed(t, *seed, "")
			}
			return func(ctx context.Context) error { return do(ctx, b.store) }
		}})
	}
	for name, seed := range map[string]*Record{"": nil, " of an open record": &open} {
		var claim *Claim
		all = append(all, operation{"Claim" + name, func(t *testing.T, b *rig) func(context.Context) error {
			claim = nil
			if seed != nil {
				b.seed(t, *seed, "")
			}
			return func(ctx context.Context) error { return lookAndClaim(ctx, b.store, &claim) }
		}})
	}
	running, done, poison := with(Running), with(Done), with(Poison)
	add("Read", &open, func(ctx context.Context, s *Store) error { _, err := s.Read(ctx, ours.ID); return err })
	add("Result", &done, func(ctx context.Context, s *Store) error { _, err := s.Result(ctx, ours.ID); return err })
	add("List", &open, func(ctx context.Context, s *Store) (err error) {
		for _, err = range s.List(ctx, "") {
		}
		return err
	})
	add("Check", nil, func(ctx context.Context, s *Store) error { return s.Check(ctx) })
	add("Enlist", nil, func(ctx context.Context, s *Store) error { _, err := s.Enlist(ctx, ours, tool); return err })
	add("CheckGroup", &open, func(ctx context.Context, s *Store) error { _, err := s.CheckGroup(ctx, ours); return err })
	add("Reopen", &running, func(ctx context.Context, s *Store) error { _, err := s.Reopen(ctx, ours, tool); return err })
	add("CheckReopen", &running, func(ctx context.Context, s *Store) error { _, err := s.CheckReopen(ctx, ours); return err })
	for name, seed := range map[string]*Record{" without a record": nil, "": &poison} {
		add("Replay"+name, seed, func(ctx context.Context, s *Store) error {
			_, err := s.Replay(ctx, ours, tool, noon, true)
			return err
		})
		add("Purge"+name, seed, func(ctx context.Context, s *Store) error { _, err := s.Purge(ctx, ours, tool, "why"); return err })
	}
	again := ours
	again.Kind = "other"
	add("Again", &done, func(ctx context.Context, s *Store) error { _, _, err := s.Again(ctx, again, tool); return err })
	add("CheckAgain", &done, func(ctx context.Context, s *Store) error { _, err := s.CheckAgain(ctx, again); return err })
	add("Cancel", &running, func(ctx context.Context, s *Store) error {
		_, err := s.Cancel(ctx, ours.ID, tool, "why", true)
		return err
	})
	add("Remove", &done, func(ctx context.Context, s *Store) error {
		r, err := s.Read(ctx, ours.ID)
		if errors.Is(err, ErrNotFound) {
			return nil // an earlier try removed it
		}
		if err != nil {
			return err
		}
		return s.Remove(ctx, r)
	})
	return all
}

// lookAndClaim claims a job as a worker does, which repeats it after an error.
func lookAndClaim(ctx context.Context, s *Store, c **Claim) (err error) {
	if *c != nil {
		return (*c).Touch(ctx, Snapshot{})
	}
	found, ruling, err := s.Lookup(ctx, ours)
	switch {
	case err != nil:
		return err
	case ruling == Create:
		*c, err = s.Create(ctx, ours, "worker-1")
	default:
		*c, err = s.Acquire(ctx, ours, found, "worker-1")
	}
	return err
}

// TestEveryCallOfAClaimFails: an operation whose first, second or any later call fails, as all after
// it, returns an error, and has its effect once storage is well again. No failure passes for a missing
// record or a damaged state. If one call alone fails, the operation returns an error or has its effect.
func TestEveryCallOfAClaimFails(t *testing.T) { everyCallFails(t, ofClaim()) }

// TestEveryCallOfTheStoreFails is the same for operations of operators, and for operations that begin a claim.
func TestEveryCallOfTheStoreFails(t *testing.T) { everyCallFails(t, ofStore()) }

func everyCallFails(t *testing.T, operations []operation) {
	t.Helper()
	refusal := storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
	faults := map[string]storage.Fault{
		"is refused":      refusal,
		"does not arrive": {DropRequest: true},
		"gets no answer":  {DropReply: true},
	}
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			var calls atomic.Int64
			var want string
			inBubble(t, func(t *testing.T, b *rig) {
				do := op.prepare(t, b)
				b.OnCall(func(storage.Call) storage.Fault { calls.Add(1); return storage.Fault{} })
				if err := do(t.Context()); err != nil {
					t.Fatalf("without a fault: %v", err)
				}
				b.OnCall(nil)
				want = b.effect(t)
			})
			for only := range calls.Load() {
				inBubble(t, func(t *testing.T, b *rig) { failsIn(t, b, op, only, only+1, want, "alone is refused", refusal) })
			}
			for name, fault := range faults {
				for first := range calls.Load() {
					inBubble(t, func(t *testing.T, b *rig) { failsIn(t, b, op, first, math.MaxInt64, want, name, fault) })
				}
			}
		})
	}
}

// failsIn runs an operation whose calls from first to before end fail, and repeats it after an error.
// It must have its effect in the end.
func failsIn(t *testing.T, b *rig, op operation, first, end int64, want, name string, fault storage.Fault) {
	t.Helper()
	do := op.prepare(t, b)
	var calls atomic.Int64
	b.OnCall(func(storage.Call) storage.Fault {
		if call := calls.Add(1) - 1; call >= first && call < end {
			return fault
		}
		return storage.Fault{}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	err := do(ctx)
	if err == nil && end == math.MaxInt64 || errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged) || conflictIn(err) != nil {
		t.Errorf("call %d %s: %v, want the failure", first+1, name, err)
	}
	b.OnCall(nil)
	if err != nil {
		if err := do(t.Context()); err != nil {
			t.Errorf("repeated after call %d that %s: %v", first+1, name, err)
		}
	}
	if got := b.effect(t); got != want {
		t.Errorf("call %d %s, %v:\n got %s\nwant %s", first+1, name, err, got, want)
	}
}

// TestWaitForAWrite: an operation of a claim that waits for a write in flight ends with its
// context, and returns why that ended.
func TestWaitForAWrite(t *testing.T) {
	for name, do := range onClaim(Snapshot{State: []byte("state 2")}) {
		inBubble(t, func(t *testing.T, b *rig) {
			c := b.claimed(t)
			unlock, err := c.owned.lock(t.Context())
			must(t, err)
			defer unlock()
			stopped := errors.New("stopped")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, stopped)
			defer cancel()
			if err := do(ctx, c); !errors.Is(err, stopped) {
				t.Errorf("%s behind a write = %v, want why its context ended", name, err)
			}
			if !c.MayExist(ctx) {
				t.Error("MayExist behind a write = false, want true: it is not known")
			}
		})
	}
}
