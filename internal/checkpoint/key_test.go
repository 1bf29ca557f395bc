package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/property"
)

func isMixed(context.Context, int) bool { return true }

// version returns the version of the format of the record.
func (b *rig) version(t *testing.T) string {
	t.Helper()
	b.read(t)
	blob, _, _ := b.ReadBlob(recordsName, b.Blobs(recordsName)[0].Name)
	return blob.Metadata["v"]
}

// A job has one key from its first state in blocks on, so that each claim finds the same
// hash for the same state. A job that began beside older workers has none: with one a
// repeated state would count as progress.
func TestKeyStaysWithTheJob(t *testing.T) {
	for name, row := range map[string]struct {
		first, later func(context.Context, int) bool
		version      string
	}{
		"no older worker":            {nil, nil, "3"},
		"an older worker comes":      {nil, isMixed, "3"},
		"an older worker at first":   {isMixed, nil, "1"},
		"older workers all the time": {isMixed, isMixed, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				c := b.store.Fresh(ours, "worker-1")
				c.SetMixed(row.first)
				must(t, c.Save(t.Context(), streamed(large("abc"))))
				must(t, c.Fail(t.Context(), streamed(large("abd")), "no"))
				first := b.read(t)
				if got := b.version(t); got != row.version || (first.StateKey == "") != (got == "1") {
					t.Fatalf("version %s with key %q, want version %s", got, first.StateKey, row.version)
				}
				b.ResetCounts()
				for range 2 {
					c = b.acquire(t, ours, "worker-2")
					c.SetMixed(row.later)
					must(t, c.Fail(t.Context(), streamed(large("abd")), "no"))
				}
				if r := b.read(t); r.Progressed || r.Failures != 3 || r.StateHash != first.StateHash || r.StateKey != first.StateKey {
					t.Errorf("after the same state: progressed %t, %d failures, key %q, want none, 3, %q", r.Progressed, r.Failures, r.StateKey,
						first.StateKey)
				}
				if sent := b.Counts()[storage.OpPutBlock]; sent > 0 {
					t.Errorf("%d blocks were sent again, want none", sent)
				}
				b.holds(t, "abd")
			})
		})
	}
}

// Each job has its own key, so that content that collides for one does not for others.
func TestKeysDiffer(t *testing.T) {
	keys := map[blocks.Key]bool{}
	for range 3 {
		inBubble(t, func(t *testing.T, b *rig) {
			must(t, b.store.Fresh(ours, "worker-1").Save(t.Context(), streamed(large("abc"))))
			keys[b.read(t).StateKey] = true
		})
	}
	if len(keys) != 3 || keys[""] {
		t.Errorf("keys of three jobs = %v, want three", keys)
	}
}

// A record that has no keyed state is for all versions, whatever states it had before: a
// small one, none, a result, and after a replay from scratch.
func TestRecordsWithoutKeyAreForAll(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, b *rig, c *Claim){
		"a state in one piece": func(t *testing.T, _ *rig, c *Claim) { must(t, c.Save(t.Context(), asReported("1"))) },
		"a result":             func(t *testing.T, _ *rig, c *Claim) { must(t, c.Commit(t.Context(), []byte("r"))) },
		"cancelled": func(t *testing.T, b *rig, _ *Claim) {
			_, err := b.store.Cancel(t.Context(), ours.ID, "spotctl", "no", true)
			must(t, err)
		},
		"replayed from scratch": func(t *testing.T, b *rig, c *Claim) {
			must(t, c.Poison(t.Context(), Snapshot{}, "no"))
			if v := b.version(t); v != "3" {
				t.Errorf("version of a poison job = %s, want 3: a replay continues from its state", v)
			}
			_, err := b.store.Replay(t.Context(), ours, "spotctl", time.Now(), true)
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				c := b.store.Fresh(ours, "worker-1")
				must(t, c.Save(t.Context(), streamed(large("abc"))))
				if v := b.version(t); v != "3" {
					t.Fatalf("version = %s, want 3", v)
				}
				change(t, b, c)
				if r := b.read(t); b.version(t) != "1" || r.StateKey != "" {
					t.Errorf("version = %s with key %q, want 1 without", b.version(t), r.StateKey)
				}
			})
		})
	}
}

// A key that an older worker would have left in a record means nothing there.
func TestKeyBesideAnOlderState(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.store.Fresh(ours, "worker-1")
		c.SetMixed(isMixed)
		must(t, c.Release(t.Context(), streamed(large("abc"))))
		b.writeAsOperator(t, func(r *Record) { r.unknown = map[string]string{"statekey": string(blocks.NewKey())} })
		s, err := b.acquire(t, ours, "worker-2").Restore(t.Context())
		must(t, err)
		if !bytes.Equal(readAll(t, s), large("abc")) {
			t.Error("the restored state is another one")
		}
	})
}

// damages are ways in which a body can differ from the state.
func damages(body []byte) map[string][]byte {
	all := map[string][]byte{
		"cut": body[:len(body)-1], "cut by a block": body[:len(body)-chunk], "empty": {},
		"blocks swapped": bytes.Join([][]byte{body[chunk : 2*chunk], body[:chunk], body[2*chunk:]}, nil),
		"block repeated": bytes.Join([][]byte{body[:chunk], body[:chunk], body[2*chunk:]}, nil),
	}
	for at := 0; at < len(body); at += proof.Times(len(body)/40, 1) {
		damaged := bytes.Clone(body)
		damaged[at] ^= 1 << (at % 8)
		all[fmt.Sprintf("byte %d", at)] = damaged
	}
	return all
}

// Every damage of a body is found before the reader has the last bytes, with both hashes;
// so are another key and another hash.
func TestEveryDamageIsFound(t *testing.T) {
	for _, mixed := range []func(context.Context, int) bool{nil, isMixed} {
		inBubble(t, func(t *testing.T, b *rig) {
			c := b.store.Fresh(ours, "worker-1")
			c.SetMixed(mixed)
			must(t, c.Release(t.Context(), streamed(large("abcde")[:4*chunk+chunk/3])))
			body := []byte(b.body(t))
			isFound := func(what string, change func(r *Record)) {
				t.Helper()
				r := b.read(t)
				change(&r)
				stream, err := b.store.newClaim(ours, "worker-2", r).OpenState(t.Context())
				must(t, err)
				got, err := io.ReadAll(stream)
				if !errors.Is(err, ErrDamaged) || len(got) == len(body) {
					t.Fatalf("%s: read %d bytes of %d, %v, want ErrDamaged before the last", what, len(got), len(body), err)
				}
				must(t, stream.Close())
			}
			if key := b.read(t).StateKey; key != "" {
				isFound("another key", func(r *Record) { r.StateKey = blocks.NewKey() })
				isFound("no key", func(r *Record) { r.StateKey = "" })
			} else {
				isFound("a key", func(r *Record) { r.StateKey = blocks.NewKey() })
			}
			isFound("another hash", func(r *Record) { r.StateHash = hashOf(nil) })
			for what, damaged := range damages(body) {
				r := b.read(t)
				_, err := b.store.put(t.Context(), &r, r.ETag, content{data: damaged})
				must(t, err)
				isFound(what, func(*Record) {})
			}
		})
	}
}

// TestHashHistories: claims of workers that know of older workers and of others that do not,
// save, repeat and hand over states of all sizes. Each owner restores the last state, and only
// a changed state is progress.
func TestHashHistories(t *testing.T) {
	proof.Only(t, "it hashes gigabytes")
	property.Check(t, func(rt *rapid.T) {
		inBubble(t, func(t *testing.T, b *rig) {
			newest := "none"
			for n := range rapid.IntRange(1, 5).Draw(rt, "claims") {
				c := b.store.Fresh(ours, "worker")
				if n > 0 && newest != "none" {
					c = b.acquire(t, ours, "worker")
				}
				if rapid.Bool().Draw(rt, "mixed") {
					c.SetMixed(isMixed)
				}
				begun := newest
				if newest != "none" {
					s, err := c.Restore(t.Context())
					if got := contentOf(t, s, err); got != newest {
						t.Fatalf("restored %d bytes, want the last state, %d", len(got), len(newest))
					}
				}
				progressed := false
				for range rapid.IntRange(1, 4).Draw(rt, "saves") {
					state := rapid.SampledFrom([]string{begun, newest, "1", "22", string(large("ab")), string(large("abc")),
						string(large("abcd")[:3*chunk+5]), string(large("xbc"))}).Draw(rt, "state")
					if state == "none" {
						continue
					}
					must(t, c.Save(t.Context(), asReported(state)))
					progressed = progressed || state != begun
					newest = state
				}
				if newest == "none" {
					continue
				}
				r := b.read(t)
				if b.body(t) != newest {
					t.Fatal("the body is another state than the last one")
				}
				if progressed != r.Progressed {
					t.Fatalf("progressed = %t, want %t", r.Progressed, progressed)
				}
				must(t, c.Fail(t.Context(), Snapshot{}, "no"))
			}
		})
	})
}
