package lifecycle

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/property"
)

// past holds the facts in which the promises of the package are stated. It is
// kept apart from Facts, from the accepted events alone.
type past struct {
	warm, ending, stands, held, drained bool
}

// TestAnySequence checks the promises for a worker after every step of any
// sequence of events, independently of the table.
func TestAnySequence(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		var p Position
		var was past
		for _, e := range rapid.SliceOfN(rapid.SampledFrom(Events()), 1, 60).Draw(t, "events") {
			next, err := Next(p, e)
			if err != nil {
				checkRefusal(t, p, next, e)
				continue
			}
			was.add(p.State, e)
			checkStep(t, p.State, e, next.State, was)
			p = next
		}
	})
}

// add records an accepted event.
func (w *past) add(from State, e Event) {
	if from != Shutdown {
		w.drained = false
	}
	switch e {
	case Warm:
		w.warm = true
	case Terminate:
		w.ending = true
	case Notice:
		w.stands = true
	case Withdrawn:
		w.stands = false
	case Hold:
		w.held = true
	case Unhold:
		w.held = false
	case Drained:
		w.drained = true
	case Known, Ready:
	}
}

// checkRefusal: a refusal changes nothing, only a stopped worker may refuse a
// notice, a hold or a request to end, and no drain ends unheard.
func checkRefusal(t *rapid.T, p, next Position, e Event) {
	if next != p {
		t.Fatalf("refused %s moved %s to %s", e, p, next)
	}
	if p.State != Stopped && (e == Notice || e == Hold || e == Terminate) {
		t.Fatalf("%s was refused in %s", e, p)
	}
	if p.State == Shutdown && e == Drained {
		t.Fatalf("%s was refused in %s", e, p)
	}
}

// checkStep checks the promises for any step that is taken; was includes the
// event that caused it.
func checkStep(t *rapid.T, from State, e Event, to State, was past) {
	told := e == Notice || e == Hold || e == Terminate
	back := from == Shutdown && (to == Recover || to == Start)
	for _, law := range []struct {
		name  string
		holds bool
	}{
		{"a worker with a notice shuts down", !told || from == Shutdown || to == Shutdown},
		{"stopped is final", from != Stopped},
		{"work begins only after resume", to != Process || from == Resume},
		{"resume comes only after recover", to != Resume || from == Recover},
		{"recover comes after warm-up or a shutdown", to != Recover || from == Start || from == Shutdown},
		{"only start continues cold", to == Start || to == Shutdown || to == Stopped || was.warm},
		{"who was warm does not warm up again", to != Start || !was.warm},
		{"a worker stops only from shutdown", to != Stopped || from == Shutdown},
		{"a worker stops only when asked to", to != Stopped || was.ending},
		{"a worker stops only when drained", to != Stopped || was.drained},
		{"drained and asked to end is stopped", to != Shutdown || !was.drained || !was.ending},
		{"shutdown is left only when drained", to == Shutdown || from != Shutdown || was.drained},
		{"no worker returns to work while an event stands", !back || !was.stands},
		{"no worker returns to work while an operator holds it", !back || !was.held},
		{"no worker returns to work after it was asked to end", !back || !was.ending},
		{"drained and withdrawn is back to work", to != Shutdown || !was.drained || was.stands || was.held},
	} {
		if !law.holds {
			t.Fatalf("%s: broken by %s from %s to %s after %+v", law.name, e, from, to, was)
		}
	}
}
