package checkpoint

import (
	"strings"
	"testing"
)

// list is a list of outputs that a claim carries.
func list(letter string, files int) Outputs {
	if files == 0 {
		return Outputs{}
	}
	return Outputs{Hash: strings.Repeat(letter, 64), Files: files, Bytes: 1}
}

// A record that was removed is created again with the outputs of the handler that runs,
// and without any for a handler that has not started.
func TestOutputsOfARemovedRecord(t *testing.T) {
	for _, runs := range []bool{true, false} {
		inBubble(t, func(t *testing.T, b *rig) {
			before := list("a", 1)
			c := b.store.Fresh(ours, "worker-1")
			c.SetFacts(func(f Facts) Facts { f.Outputs = before; return f })
			must(t, c.Save(t.Context(), Snapshot{State: []byte("1")}))
			c = b.acquire(t, ours, "worker-2")
			if runs {
				c.SetFacts(func(f Facts) Facts { f.Outputs = before; return f })
			}
			b.remove(t)
			if !runs {
				s, err := c.Restore(t.Context())
				if s != nil || err != nil {
					t.Fatalf("Restore of a removed record = %v, %v, want none", s, err)
				}
			}
			must(t, c.Save(t.Context(), Snapshot{State: []byte("2")}))
			if r := b.read(t); (r.Outputs == before) != runs {
				t.Errorf("handler runs %t: outputs = %+v", runs, r.Outputs)
			}
		})
	}
}
