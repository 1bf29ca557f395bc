package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// kept returns the claim of a kind that keeps two states.
func kept(t *testing.T, c *Claim) *Claim {
	t.Helper()
	must(t, c.KeepPrevious(t.Context()))
	return c
}

// asReported is a state as a handler reports it: a short one in one piece.
func asReported(state string) Snapshot {
	if len(state) < chunk {
		return Snapshot{State: []byte(state), Version: len(state)}
	}
	s := streamed([]byte(state))
	s.Version = len(state)
	return s
}

// contentOf reads a restored state, which has the version that it was saved with.
func contentOf(t *testing.T, s *Snapshot, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if s == nil {
		return "none"
	}
	data := s.State
	if s.Stream != nil {
		data = readAll(t, s)
	}
	if s.Version != len(data) {
		t.Errorf("version = %d, want %d", s.Version, len(data))
	}
	return string(data)
}

// The two last states are there for every next owner, for all sizes, and a body has
// nothing else.
func TestPreviousIsKept(t *testing.T) {
	big := func(letters string) string { return string(large(letters)) }
	for name, states := range map[string][]string{
		"in one piece":          {"1", "22", "333", "4444"},
		"in blocks":             {big("abc"), big("abcd"), big("xbcd"), big("xy")},
		"growing and shrinking": {"1", big("abc"), "22", "333", big("ab"), big("abc")},
		"the same blocks":       {big("aa"), big("aaa"), big("a")},
		"the same twice":        {"1", "22", "22", big("ab"), big("ab")},
		"empty":                 {"", "1", "", "22"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, handOver := range []bool{false, true} {
				inBubble(t, func(t *testing.T, b *rig) {
					c := kept(t, b.store.Fresh(ours, "worker-1"))
					newest, before := "none", "none"
					for _, state := range states {
						must(t, c.Save(t.Context(), asReported(state)))
						if state != newest {
							newest, before = state, newest
						}
						if want := newest + before; before != "none" && b.body(t) != want {
							t.Fatalf("the body has %d bytes, want both states, %d", len(b.body(t)), len(want))
						}
						if !handOver {
							continue
						}
						c = kept(t, b.acquire(t, ours, "worker-2"))
						s, err := c.Restore(t.Context())
						if got := contentOf(t, s, err); got != newest {
							t.Fatalf("restored %d bytes, want the newest state, %d", len(got), len(newest))
						}
						next := b.acquire(t, ours, "worker-3")
						s, err = next.StepBack(t.Context())
						if got := contentOf(t, s, err); got != before {
							t.Fatalf("stepped back to %d bytes, want the state before, %d", len(got), len(before))
						}
						c = kept(t, b.acquire(t, ours, "worker-4"))
						s, err = c.Restore(t.Context())
						contentOf(t, s, err)
					}
				})
			}
		})
	}
}

// After a step back the state that was unusable is gone with the next save, and the one
// before it stays.
func TestStepBack(t *testing.T) {
	for name, of := range statesOf() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				c := kept(t, b.store.Fresh(ours, "worker-1"))
				must(t, c.Save(t.Context(), asReported(of("1"))))
				must(t, c.Fail(t.Context(), asReported(of("2")), "bad"))
				c = kept(t, b.acquire(t, ours, "worker-2"))
				s, err := c.StepBack(t.Context())
				if got := contentOf(t, s, err); got != of("1") {
					t.Fatalf("stepped back to %d bytes, want the first state", len(got))
				}
				if n := c.FailuresAfter(asReported("1"), false); name == "in one piece" && n != 2 {
					t.Errorf("failures with the state that it stepped back to = %d, want 2: it is no progress", n)
				}
				must(t, c.Save(t.Context(), asReported(of("1"))))
				if r := b.read(t); r.Progressed || r.Failures != 1 || r.StepsBack != 1 || r.HasPrevious() {
					t.Errorf("record = %+v, want no progress, 1 step back, and nothing before the state", r)
				}
				must(t, c.Save(t.Context(), asReported(of("3"))))
				if r := b.read(t); !r.Progressed || r.Failures != 0 || r.StepsBack != 1 || b.body(t) != of("3")+of("1") {
					t.Errorf("record = %+v, want progress, with the first state before the third", r)
				}
				c = kept(t, b.acquire(t, ours, "worker-3"))
				s, err = c.StepBack(t.Context())
				contentOf(t, s, err)
				must(t, c.Save(t.Context(), asReported(of("4"))))
				if r := b.read(t); r.StepsBack != 2 || b.body(t) != of("4")+of("1") {
					t.Errorf("record = %+v, want 2 steps back, with the first state before the fourth", r)
				}
			})
		})
	}
}

// A save of a kind that keeps two states takes the calls and, in blocks, the bytes of a
// save with a single state.
func TestPreviousCostsNoCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := kept(t, b.store.Fresh(ours, "worker-1"))
		must(t, c.Save(t.Context(), streamed(large("abc"))))
		b.expectCalls(t, "the first save", calls{storage.OpPutBlob: 1, storage.OpPutBlock: 3, storage.OpPutBlockList: 1})
		must(t, c.Save(t.Context(), streamed(large("abd"))))
		b.expectCalls(t, "a change", calls{storage.OpPutBlock: 1, storage.OpPutBlockList: 1})
		must(t, c.Save(t.Context(), streamed(large("abc"))))
		b.expectCalls(t, "the state before the last", calls{storage.OpPutBlockList: 1})
	})
	inBubble(t, func(t *testing.T, b *rig) {
		c := kept(t, b.store.Fresh(ours, "worker-1"))
		for _, state := range []string{"1", "22", "333"} {
			must(t, c.Save(t.Context(), asReported(state)))
			b.expectCalls(t, "a small state", calls{storage.OpPutBlob: 1})
		}
	})
}

// statesOf makes states of both kinds of body, each with a letter of its own.
func statesOf() map[string]func(letter string) string {
	return map[string]func(letter string) string{
		"in one piece": func(letter string) string { return letter },
		"in blocks":    func(letter string) string { return string(large("same" + letter)) },
	}
}

// Versions that do not know the keys of a previous state leave them alone. Then they mean
// nothing, unless the body is still the one of their write.
func TestPreviousAndOlderVersions(t *testing.T) {
	for name, of := range statesOf() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				c := kept(t, b.store.Fresh(ours, "worker-1"))
				must(t, c.Save(t.Context(), asReported(of("1"))))
				must(t, c.Release(t.Context(), asReported(of("2"))))

				// An older version reads StateSize bytes as a state in blocks.
				r := b.read(t)
				r.Previous = Previous{}
				old := b.store.newClaim(ours, "older", r)
				stream, err := old.OpenState(t.Context())
				must(t, err)
				data, err := io.ReadAll(stream)
				if string(data) != of("2") || err != nil {
					t.Errorf("an older version reads %d bytes, %v, want the newest state", len(data), err)
				}

				// It records another state and keeps the keys that it does not know.
				stale := b.read(t)
				next := b.acquire(t, ours, "older")
				must(t, next.Save(t.Context(), asReported(of("3"))))
				written := b.read(t)
				written.Previous = stale.Previous
				_, err = b.store.put(t.Context(), &written, written.ETag, content{})
				must(t, err)
				c = kept(t, b.acquire(t, ours, "worker-2"))
				s, err := c.Restore(t.Context())
				if got := contentOf(t, s, err); got != of("3") || c.Record().HasPrevious() {
					t.Errorf("after a save by an older version: %d bytes, previous %t, want its state alone", len(got), c.Record().HasPrevious())
				}
				if s, err := c.StepBack(t.Context()); s != nil || err != nil {
					t.Errorf("StepBack = %v, %v, want nothing", s, err)
				}
				must(t, c.Save(t.Context(), asReported(of("4"))))
				if got := b.body(t); got != of("4")+of("3") {
					t.Errorf("the body has %d bytes, want the state of the older version behind the new one", len(got))
				}
			})
		})
	}
}

// A kind that is set back to one state drops the one before with its next save.
func TestPreviousIsDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := kept(t, b.store.Fresh(ours, "worker-1"))
		must(t, c.Save(t.Context(), asReported("1")))
		must(t, c.Save(t.Context(), asReported("22")))
		c = b.acquire(t, ours, "worker-2")
		must(t, c.Save(t.Context(), asReported("22")))
		if r := b.read(t); r.Progressed || !r.HasPrevious() {
			t.Errorf("record after a save of the same state = %+v, want no progress, and the body as it was", r)
		}
		must(t, c.Save(t.Context(), asReported("333")))
		if r := b.read(t); r.HasPrevious() || r.Previous != (Previous{}) || b.body(t) != "333" {
			t.Errorf("record = %+v, want one state", r)
		}
		must(t, c.Commit(t.Context(), []byte("result")))
	})
}

// A previous state that differs from the saved state is reported as damage, as the newest state is.
func TestPreviousDamaged(t *testing.T) {
	for name, of := range statesOf() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				c := kept(t, b.store.Fresh(ours, "worker-1"))
				must(t, c.Save(t.Context(), asReported(of("1"))))
				must(t, c.Save(t.Context(), asReported(of("2"))))
				c = b.acquire(t, ours, "worker-2")
				r, body := b.read(t), []byte(b.body(t))
				body[len(body)-1]++
				_, err := b.store.put(t.Context(), &r, r.ETag, content{data: body})
				must(t, err)
				_, err = readStep(t.Context(), c)
				if !errors.Is(err, ErrDamaged) {
					t.Errorf("StepBack to a damaged state = %v, want ErrDamaged", err)
				}
				s, err := c.Restore(t.Context())
				if got := contentOf(t, s, err); got != of("2") {
					t.Errorf("restored %d bytes, want the newest state, which is whole", len(got))
				}
			})
		})
	}
}

func readStep(ctx context.Context, c *Claim) ([]byte, error) {
	s, err := c.StepBack(ctx)
	if err != nil || s.Stream == nil {
		return nil, err
	}
	stream, err := s.Stream()
	if err != nil {
		return nil, err
	}
	var data bytes.Buffer
	_, err = data.ReadFrom(stream)
	return data.Bytes(), errors.Join(err, stream.Close())
}
