package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// A job has one key from its first state on, so that each claim finds the same hash for the same
// state, in one piece or in blocks.
func TestKeyStaysWithTheJob(t *testing.T) {
	for name, state := range map[string]func() Snapshot{
		"in one piece": func() Snapshot { return asReported("abd") },
		"in blocks":    func() Snapshot { return streamed(large("abd")) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				c := b.store.Fresh(ours, "worker-1")
				must(t, c.Save(t.Context(), streamed(large("abc"))))
				must(t, c.Fail(t.Context(), state(), "no"))
				first := b.read(t)
				if first.StateKey == "" {
					t.Fatal("the record has no key")
				}
				b.ResetCounts()
				for range 2 {
					must(t, b.acquire(t, ours, "worker-2").Fail(t.Context(), state(), "no"))
				}
				if r := b.read(t); r.Progressed || r.Failures != 3 || r.StateHash != first.StateHash || r.StateKey != first.StateKey {
					t.Errorf("after the same state: progressed %t, %d failures, key %q, want none, 3, %q", r.Progressed, r.Failures, r.StateKey,
						first.StateKey)
				}
				if sent := b.Counts()[storage.OpPutBlock]; sent > 0 {
					t.Errorf("%d blocks were sent again, want none", sent)
				}
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

// Every damage of a body is found before the reader has the last bytes;
// so are another key and another hash.
func TestEveryDamageIsFound(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.store.Fresh(ours, "worker-1")
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
		isFound("another key", func(r *Record) { r.StateKey = blocks.NewKey() })
		isFound("no key", func(r *Record) { r.StateKey = "" })
		isFound("another hash", func(r *Record) { r.StateHash = hashOf(nil) })
		for what, damaged := range damages(body) {
			r := b.read(t)
			_, err := b.store.put(t.Context(), &r, r.ETag, content{data: damaged})
			must(t, err)
			isFound(what, func(*Record) {})
		}
	})
}
