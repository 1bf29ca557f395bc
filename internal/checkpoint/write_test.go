package checkpoint

import (
	"context"
	"testing"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// writeKind is one of the writes that a claim makes.
type writeKind struct {
	name string

	// prepare sets the stage and returns the write. It may be called again
	// when it returned an error, as the worker does.
	prepare func(t *testing.T, b *rig) func() error

	// want is the record once the write took effect, exactly once.
	want func(r Record) bool

	// ends says that the claim is over once it took effect.
	ends bool
}

func writeKinds() []writeKind {
	onClaim := func(do func(t *testing.T, c *Claim) error) func(*testing.T, *rig) func() error {
		return func(t *testing.T, b *rig) func() error {
			c := b.claimed(t)
			return func() error { return do(t, c) }
		}
	}
	next := Snapshot{State: []byte("state 2"), Version: 2, Fraction: 0.5, Text: "two"}
	saved := func(r Record) bool {
		return r.StateHash == blocks.HashOf([]byte("state 2"), chunk, r.StateKey) && r.StateSize == 7 &&
			r.StateVersion == 2 && r.Fraction == 0.5 && r.Text == "two"
	}
	return []writeKind{
		{"create", func(t *testing.T, b *rig) func() error {
			return repeatable(t, func() (*Claim, error) { return b.store.Create(t.Context(), ours, "worker-1") })
		}, func(r Record) bool {
			return r.Status == Running && r.Generation == 1 && r.MessageID == ours.MessageID && r.Kind == ours.Kind &&
				r.PayloadHash == ours.PayloadHash
		}, false},
		{"take", func(t *testing.T, b *rig) func() error {
			found := b.seed(t, Record{Status: Running, MessageID: ours.MessageID, Generation: 3, ChargedExits: 1, Charge: true}, "")
			return repeatable(t, func() (*Claim, error) { return b.store.Acquire(t.Context(), ours, found, "worker-1") })
		}, func(r Record) bool {
			return r.Status == Running && r.Generation == 4 && r.ChargedExits == 2 && r.Kind == ours.Kind && !r.ClaimedAt.IsZero()
		}, false},
		{"take of another message's", func(t *testing.T, b *rig) func() error {
			found := b.seed(t, Record{Status: Open, MessageID: "m-0", Generation: 3, ChargedExits: 1, Progressed: true}, "")
			return repeatable(t, func() (*Claim, error) { return b.store.Acquire(t.Context(), ours, found, "worker-1") })
		}, func(r Record) bool {
			return r.Status == Running && r.Generation == 4 && r.ChargedExits == 1 && r.MessageID == ours.MessageID && !r.Progressed
		}, false},
		{"take of a job that was replayed", func(t *testing.T, b *rig) func() error {
			found := b.seed(t, Record{Status: Open, Generation: 3, EndedAt: noon}, "")
			return repeatable(t, func() (*Claim, error) { return b.store.Acquire(t.Context(), ours, found, "worker-1") })
		}, func(r Record) bool { // a time of an end would let a purge cancel the job at its next release
			return r.Status == Running && r.Generation == 4 && r.EndedAt.IsZero() && !r.GivenUp()
		}, false},
		{"first save", func(t *testing.T, b *rig) func() error {
			c := b.store.Fresh(ours, "worker-1")
			return func() error { return c.Save(t.Context(), next) }
		}, func(r Record) bool { return r.Status == Running && r.Generation == 1 && saved(r) }, false},
		{"save", onClaim(func(t *testing.T, c *Claim) error { return c.Save(t.Context(), next) }),
			func(r Record) bool { return r.Status == Running && saved(r) && r.Progressed }, false},
		{"touch", onClaim(func(t *testing.T, c *Claim) error { return c.Touch(t.Context(), next) }),
			func(r Record) bool { return r.Status == Running && r.Fraction == 0.5 && r.StateVersion == 1 }, false},
		{"commit", onClaim(func(t *testing.T, c *Claim) error { return c.Commit(t.Context(), []byte("result")) }),
			func(r Record) bool {
				return r.Status == Done && r.Size == 6 && r.Fraction == 1 && r.StateHash == "" && !r.EndedAt.IsZero()
			}, true},
		{"first commit", func(t *testing.T, b *rig) func() error {
			c := b.store.Fresh(ours, "worker-1")
			return func() error { return c.Commit(t.Context(), nil) }
		}, func(r Record) bool { return r.Status == Done && r.Size == 0 && r.Generation == 1 }, true},
		{"commit without a result", onClaim(func(t *testing.T, c *Claim) error { return c.Commit(t.Context(), nil) }),
			func(r Record) bool { return r.Status == Done && r.Size == 0 && r.StateHash == "" }, true},
		{"release", onClaim(func(t *testing.T, c *Claim) error { return c.Release(t.Context(), next) }),
			func(r Record) bool { return r.Status == Open && r.Interruptions == 1 && r.Failures == 0 && saved(r) }, true},
		{"release without state", onClaim(func(t *testing.T, c *Claim) error { return c.Release(t.Context(), Snapshot{}) }),
			func(r Record) bool { return r.Status == Open && r.Interruptions == 1 && r.StateVersion == 1 }, true},
		{"fail", onClaim(func(t *testing.T, c *Claim) error { return c.Fail(t.Context(), Snapshot{}, "no luck\n") }),
			func(r Record) bool {
				return r.Status == Open && r.Failures == 1 && r.FailuresTotal == 1 && r.Interruptions == 0 && r.Reason == "no luck\n"
			}, true},
		{"break", onClaim(func(t *testing.T, c *Claim) error { return c.Break(t.Context(), Snapshot{}) }),
			func(r Record) bool {
				return r.Status == Open && r.Interruptions == 1 && r.Breaks == 1 && r.Failures == 0 && r.FailuresTotal == 0
			}, true},
		{"first break", func(t *testing.T, b *rig) func() error { // leaves a record, or nothing would be counted
			c := b.store.Fresh(ours, "worker-1")
			return func() error { return c.Break(t.Context(), Snapshot{}) }
		}, func(r Record) bool { return r.Status == Open && r.Breaks == 1 && r.Generation == 1 }, true},
		{"break with progress", onClaim(func(t *testing.T, c *Claim) error { return c.Break(t.Context(), next) }),
			func(r Record) bool { return r.Status == Open && r.Breaks == 0 && r.Peak == 0.5 && saved(r) }, true},
		{"first fail", func(t *testing.T, b *rig) func() error {
			c := b.store.Fresh(ours, "worker-1")
			return func() error { return c.Fail(t.Context(), Snapshot{}, "no luck") }
		}, func(r Record) bool { return r.Status == Open && r.Failures == 1 && r.Generation == 1 }, true},
		{"poison", onClaim(func(t *testing.T, c *Claim) error { return c.Poison(t.Context(), Snapshot{}, "never") }),
			func(r Record) bool {
				return r.Status == Poison && r.Reason == "never" && r.StateVersion == 1 && r.FailuresTotal == 0
			}, true},
		{"a failure too many", onClaim(func(t *testing.T, c *Claim) error { return c.FailLast(t.Context(), Snapshot{}, "no luck") }),
			func(r Record) bool {
				return r.Status == Poison && r.Reason == "no luck" && r.Failures == 1 && r.FailuresTotal == 1
			}, true},
	}
}

// repeatable repeats a claim as the worker does: the first try makes the claim,
// further ones touch it, which settles the outcome of the first.
func repeatable(t *testing.T, claim func() (*Claim, error)) func() error {
	var c *Claim
	return func() (err error) {
		if c == nil {
			c, err = claim()
			return err
		}
		return c.Touch(t.Context(), Snapshot{})
	}
}

// For any fate of its requests and replies, a write has its effect once.
func TestWriteInTrouble(t *testing.T) {
	reply, request := storage.Fault{DropReply: true}, storage.Fault{DropRequest: true}
	busy := storage.Fault{Refuse: storage.ServerBusy(0)}
	for name, tr := range map[string]trouble{
		"none":                            {},
		"request lost":                    {1, 0, request},
		"all requests lost":               {tries, 0, request},
		"all requests lost, read fails":   {tries, tries, request},
		"requests of two writes lost":     {2 * tries, 0, request},
		"reply lost":                      {1, 0, reply},
		"all replies lost":                {tries, 0, reply},
		"all replies lost, read fails":    {tries, tries, reply},
		"all replies lost, 2 reads fail":  {tries, 2 * tries, reply},
		"busy once":                       {1, 0, busy},
		"busy":                            {tries, 0, busy},
		"busy, read fails":                {tries, tries, busy},
		"answered with an internal error": {tries, 0, storage.Fault{Refuse: &storage.Error{Status: 500, Code: "InternalError"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range writeKinds() {
				t.Run(kind.name, func(t *testing.T) {
					inBubble(t, func(t *testing.T, b *rig) {
						write := kind.prepare(t, b)
						b.cause(tr)
						insist(t, write, 1+tr.reads/tries)
						b.expect(t, kind)
						if kind.ends {
							b.expectOver(t, kind, write)
						}
					})
				})
			}
		})
	}
}

// insist repeats the write until it succeeds, with exactly as many calls as given.
func insist(t *testing.T, write func() error, calls int) {
	t.Helper()
	for call := 1; ; call++ {
		err := write()
		switch {
		case err == nil && call == calls:
			return
		case err == nil:
			t.Fatalf("the write succeeded at call %d, want %d; the trouble did not happen", call, calls)
		case call == calls:
			t.Fatalf("call %d of the write = %v, want no error", call, err)
		case conflictIn(err) != nil:
			t.Fatalf("call %d of the write = %v, want no conflict", call, err)
		}
	}
}

// expect demands that the write took effect, once.
func (b *rig) expect(t *testing.T, kind writeKind) {
	t.Helper()
	if r := b.read(t); !kind.want(r) || r.Version != Version || r.Owner != "worker-1" {
		t.Errorf("record after %s = %+v, want its effect, once", kind.name, r)
	}
}

// expectOver demands that the same call again changes nothing.
func (b *rig) expectOver(t *testing.T, kind writeKind, write func() error) {
	t.Helper()
	before := b.read(t)
	if err := write(); err != nil {
		t.Errorf("a second %s = %v, want no error: it has taken effect", kind.name, err)
	}
	if after := b.read(t); after.ETag != before.ETag {
		t.Errorf("a second %s changed the record to %+v", kind.name, after)
	}
}

// A first try that lands late, after other writes of the claim, neither
// undoes nor doubles the write.
func TestWriteArrivesLate(t *testing.T) {
	for when, name := range map[lateness]string{
		afterRepeat: "after the repeat", beforeRead: "before the read", afterRead: "between the read and the repeat",
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range writeKinds() {
				t.Run(kind.name, func(t *testing.T) {
					inBubble(t, func(t *testing.T, b *rig) {
						write := kind.prepare(t, b)
						b.link.late(when)
						err := write()
						b.link.step = nil
						b.expect(t, kind)
						conflict := conflictIn(err)
						switch {
						case err == nil:
						case conflict == nil:
							t.Errorf("%s = %v, want no error or a conflict", kind.name, err)
						case when != afterRead || !kind.ends:
							t.Errorf("%s = %v, want no conflict", kind.name, err)
						case conflict.Ruling != Finish && conflict.Ruling != PutBack:
							t.Errorf("%s = %v, want to finish or to put back", kind.name, err)
						}
					})
				})
			}
		})
	}
}

// A former owner writes nothing, for any fault on the way.
func TestStaleOwnerWritesNothing(t *testing.T) {
	takeovers := map[string]struct {
		happen func(t *testing.T, b *rig)
		want   Ruling
	}{
		"acquired by another": {func(t *testing.T, b *rig) { b.acquire(t, ours, "worker-2") }, Fenced},
		"acquired and released by another": {func(t *testing.T, b *rig) {
			if err := b.acquire(t, ours, "worker-2").Release(t.Context(), Snapshot{}); err != nil {
				t.Fatal(err)
			}
		}, PutBack},
		"acquired and done by another": {func(t *testing.T, b *rig) {
			if err := b.acquire(t, ours, "worker-2").Commit(t.Context(), []byte("theirs")); err != nil {
				t.Fatal(err)
			}
		}, Finish},
		"cancelled": {func(t *testing.T, b *rig) { b.writeAsOperator(t, func(r *Record) { r.Status = Cancelled }) }, Finish},
		"opened for another": {func(t *testing.T, b *rig) {
			b.writeAsOperator(t, func(r *Record) { r.Status = Open })
			b.acquire(t, other, "worker-2")
		}, PutBack},
		"used for other work": {func(t *testing.T, b *rig) { b.writeAsOperator(t, func(r *Record) { r.Kind = "other" }) }, Mismatch},
		"made by a newer version": {func(t *testing.T, b *rig) {
			b.writeAsOperator(t, func(r *Record) { r.Status = "paused" })
		}, Unreadable},
	}
	faults := map[string]trouble{
		"":                            {},
		", request lost":              {tries, 0, storage.Fault{DropRequest: true}},
		", replies lost":              {tries, 0, storage.Fault{DropReply: true}},
		", replies lost, read failed": {tries, tries, storage.Fault{DropReply: true}},
	}
	for name, takeover := range takeovers {
		for suffix, tr := range faults {
			t.Run(name+suffix, func(t *testing.T) {
				for what, write := range ownersWrites() {
					inBubble(t, func(t *testing.T, b *rig) {
						stale := b.claimed(t)
						takeover.happen(t, b)
						before, body := b.read(t), b.body(t)
						b.cause(tr)
						err := write(t.Context(), stale)
						if tr.reads > 0 && conflictIn(err) == nil && err != nil {
							err = write(t.Context(), stale) // the read failed the first time
						}
						conflict := conflictIn(err)
						if conflict == nil || conflict.Ruling != takeover.want {
							t.Errorf("%s = %v, want a conflict: %s", what, err, takeover.want)
						}
						if again := conflictIn(write(t.Context(), stale)); again != conflict {
							t.Errorf("a second %s = %v, want the same conflict", what, again)
						}
						after := b.read(t)
						if after.ETag != before.ETag || b.body(t) != body {
							t.Errorf("%s by a stale owner changed %+v to %+v", what, before, after)
						}
					})
				}
			})
		}
	}
}

// ownersWrites are the writes of a claim that has a record.
func ownersWrites() map[string]func(context.Context, *Claim) error {
	s := Snapshot{State: []byte("stale"), Fraction: 0.9}
	return map[string]func(context.Context, *Claim) error{
		"Save":     func(ctx context.Context, c *Claim) error { return c.Save(ctx, s) },
		"Touch":    func(ctx context.Context, c *Claim) error { return c.Touch(ctx, s) },
		"Commit":   func(ctx context.Context, c *Claim) error { return c.Commit(ctx, []byte("stale")) },
		"Release":  func(ctx context.Context, c *Claim) error { return c.Release(ctx, s) },
		"Fail":     func(ctx context.Context, c *Claim) error { return c.Fail(ctx, s, "stale") },
		"Poison":   func(ctx context.Context, c *Claim) error { return c.Poison(ctx, s, "stale") },
		"FailLast": func(ctx context.Context, c *Claim) error { return c.FailLast(ctx, s, "stale") },
	}
}

// The check that no write number is used for two calls sees the writes at all.
func TestWriteNumbersAreSeen(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.claimed(t)
		if len(b.link.writes) == 0 {
			t.Error("a save was sent, and the link noted no write number")
		}
	})
}
