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

// A record needs version 2 as long as an older worker would leave a job with a part of
// its outputs: while they are part of its state.
func TestOutputsNeedAVersion(t *testing.T) {
	state := Record{Status: Running, StateHash: strings.Repeat("f", 64)}
	with := func(status Status, outputs Outputs) Record {
		r := state
		r.Status, r.Outputs = status, outputs
		return r
	}
	for _, row := range []struct {
		name string
		r    Record
		want string
	}{
		{"no outputs", with(Running, Outputs{}), "1"},
		{"outputs", with(Running, list("a", 1)), "2"},
		{"outputs, released", with(Open, list("a", 1)), "2"},
		{"outputs, to be replayed", with(Poison, list("a", 1)), "2"},
		{"outputs, done", with(Done, list("a", 1)), "1"},
		{"cancelled by an older version", with(Cancelled, list("a", 1)), "1"},
	} {
		if got := *row.r.metadata()["v"]; got != row.want {
			t.Errorf("%s: version %s, want %s", row.name, got, row.want)
		}
	}
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
