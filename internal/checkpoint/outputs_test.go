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
// its outputs: while they, or the outputs of the state before the last one, are part of
// its state.
func TestOutputsNeedAVersion(t *testing.T) {
	state := Record{Status: Running, StateHash: strings.Repeat("f", 64)}
	with := func(status Status, outputs Outputs, previous string) Record {
		r := state
		r.Status, r.Outputs = status, outputs
		if previous != "" {
			r.Previous = Previous{Hash: "e", Of: signature(r.StateHash), Outputs: previous}
		}
		return r
	}
	for _, row := range []struct {
		name string
		r    Record
		want string
	}{
		{"no outputs", with(Running, Outputs{}, ""), "1"},
		{"outputs", with(Running, list("a", 1), ""), "2"},
		{"outputs, released", with(Open, list("a", 1), ""), "2"},
		{"outputs, to be replayed", with(Poison, list("a", 1), ""), "2"},
		{"outputs, done", with(Done, list("a", 1), ""), "1"},
		{"cancelled by an older version", with(Cancelled, list("a", 1), ""), "1"},
		{"none, and none before", with(Running, Outputs{}, NoOutputs), "1"},
		{"none, and some before", with(Running, Outputs{}, strings.Repeat("b", 64)), "2"},
	} {
		if got := *row.r.metadata()["v"]; got != row.want {
			t.Errorf("%s: version %s, want %s", row.name, got, row.want)
		}
	}
}

// Which outputs the state before the last one has is known, unless an older version recorded
// it beside outputs.
func TestOutputsOfOlderVersions(t *testing.T) {
	for _, outputs := range []Outputs{{}, list("a", 1)} {
		r := Record{
			ID: "job-1", Status: Open, StateHash: strings.Repeat("f", 64), StateSize: 1, Outputs: outputs,
			Previous: Previous{Hash: strings.Repeat("e", 64), Of: strings.Repeat("f", 16), Outputs: strings.Repeat("b", 64)},
		}
		metadata := r.metadata()
		metadata["v"] = new("1")
		got, err := parse("job-1", metadata)
		want := NoOutputs
		if outputs.Files > 0 {
			want = ""
		}
		if err != nil || got.Previous.Outputs != want || got.unknown["previousoutputs"] != "" {
			t.Errorf("with outputs %+v: previous outputs %q, %v, want %q", outputs, got.Previous.Outputs, err, want)
		}
	}
}

// Where two states are kept, new outputs are recorded with the next state, and the
// replaced state keeps its own outputs.
func TestOutputsAreBoundToStates(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		now := list("a", 1)
		c := kept(t, b.store.Fresh(ours, "worker-1"))
		c.SetFacts(func(f Facts) Facts { f.Outputs = now; return f })
		must(t, c.Touch(t.Context(), Snapshot{}))
		if r := b.read(t); r.Outputs != now {
			t.Errorf("outputs before the first state = %+v, want those that there are", r.Outputs)
		}
		must(t, c.Save(t.Context(), asReported("1")))
		now = list("b", 2)
		must(t, c.Touch(t.Context(), Snapshot{}))
		if r := b.read(t); r.Outputs != list("a", 1) || !c.BindsOutputs() || c.HasNewOutputs(now) {
			t.Errorf("outputs beside the state = %+v, want those of the state", r.Outputs)
		}
		must(t, c.Save(t.Context(), asReported("22")))
		if r := b.read(t); r.Outputs != now || r.Previous.Outputs != list("a", 1).Hash {
			t.Errorf("outputs = %+v, before %s, want those of each state", r.Outputs, r.Previous.Outputs)
		}
		c = kept(t, b.acquire(t, ours, "worker-2"))
		_, err := c.StepBack(t.Context())
		must(t, err)
		now = list("c", 1)
		c.SetFacts(func(f Facts) Facts { f.Outputs = now; return f })
		must(t, c.Release(t.Context(), Snapshot{}))
		if r := b.read(t); r.Outputs != list("b", 2) || r.Previous.Outputs != list("a", 1).Hash {
			t.Errorf("outputs after a step back without a state = %+v, before %s, want them as they were", r.Outputs, r.Previous.Outputs)
		}
		c = kept(t, b.acquire(t, ours, "worker-3"))
		_, err = c.StepBack(t.Context())
		must(t, err)
		c.SetFacts(func(f Facts) Facts { f.Outputs = now; return f })
		must(t, c.Save(t.Context(), asReported("333")))
		if r := b.read(t); r.Outputs != now || r.Previous.Outputs != list("a", 1).Hash {
			t.Errorf("outputs = %+v, before %s, want new ones, and before those of the state that it stepped back to", r.Outputs, r.Previous.Outputs)
		}
		now = list("d", 3)
		must(t, c.Commit(t.Context(), nil))
		if r := b.read(t); r.Outputs != now {
			t.Errorf("outputs of the job that is done = %+v, want all, %+v", r.Outputs, now)
		}
	})
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
