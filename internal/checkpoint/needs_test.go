package checkpoint

import (
	"strings"
	"testing"

	"github.com/spotworker/spotworker/job"
)

// TestNeeds: the needs of a state are recorded with it, stay with writes without a state, and
// go with the next state.
func TestNeeds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		const needs = "abc kernel=6; cpu=Ünused 7%; | a-b_c"
		c := b.store.Fresh(ours, "worker-1")
		want := func(want string) {
			t.Helper()
			if got := lookedUp(t, b).StateNeeds; got != want || c.Record().StateNeeds != want {
				t.Errorf("needs = %q and %q, want %q", got, c.Record().StateNeeds, want)
			}
		}
		must(t, c.Save(t.Context(), Snapshot{State: []byte("one"), Needs: needs}))
		want(needs)
		must(t, c.Touch(t.Context(), Snapshot{Text: "half"}))
		want(needs)
		if s, err := c.Restore(t.Context()); err != nil || s.Needs != needs {
			t.Errorf("Restore = %+v, %v, want the needs", s, err)
		}
		must(t, c.Save(t.Context(), Snapshot{State: []byte("two")}))
		want("")
		must(t, c.Save(t.Context(), Snapshot{State: []byte("three"), Needs: strings.Repeat("n", job.MaxNeeds+1)}))
		want("")
		must(t, c.Save(t.Context(), Snapshot{State: []byte("four"), Needs: needs}))
		must(t, c.Commit(t.Context(), nil))
		if got := lookedUp(t, b); got.metadata()["stateneeds"] != nil {
			t.Errorf("a job that is done has needs: %q", got.StateNeeds)
		}
	})
}

// TestNeedsWithoutRoom: needs for which a record has no room are left out, and damaged ones count as
// none.
func TestNeedsWithoutRoom(t *testing.T) {
	r := Record{Status: Open, StateHash: hashOf([]byte("one")), StateSize: 3, StateNeeds: "abc x"}
	written := r.metadata()
	if got, err := parse("", written); err != nil || got.StateNeeds != "abc x" {
		t.Fatalf("needs came back as %q, %v", got.StateNeeds, err)
	}
	damaged := "%zz"
	written["stateneeds"] = &damaged
	if got, err := parse("", written); err != nil || got.StateNeeds != "" {
		t.Errorf("damaged needs = %q, %v, want none", got.StateNeeds, err)
	}
	r.Reason, r.Text = strings.Repeat("\n", maxReason), strings.Repeat("\n", maxText)
	r.Log, r.Owner, r.MoveReason = strings.Repeat("\n", MaxLog/3), strings.Repeat("\n", maxOwner), strings.Repeat("\n", maxMove)
	r.InputList, r.StateNeeds = strings.Repeat("i", maxInputList), strings.Repeat("\n", job.MaxNeeds)
	if _, ok := r.metadata()["stateneeds"]; ok {
		t.Error("needs without room are written")
	}
}

func lookedUp(t *testing.T, b *rig) Record {
	t.Helper()
	r, _, err := b.store.Lookup(t.Context(), ours)
	must(t, err)
	return r
}
