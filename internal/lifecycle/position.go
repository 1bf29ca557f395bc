package lifecycle

import "strings"

// Position is a state together with the facts that decide the possible next
// steps. The zero value is where every worker begins: in [Start], with no past.
// Positions are comparable.
type Position struct {
	State State
	Facts Facts
}

// String returns the state and, in brackets, the facts that hold.
func (p Position) String() string {
	if p.Facts == 0 {
		return p.State.String()
	}
	return p.State.String() + " [" + describe(p.Facts, 0) + "]"
}

// Facts is a set of things that happened earlier and still count.
type Facts uint8

const (
	// WasWarm holds from the first time that warm-up was complete, for as long
	// as the process runs, so that a worker does not warm up twice.
	WasWarm Facts = 1 << iota
	// EventStands holds from a notice until it is withdrawn.
	EventStands
	// EndRequested holds once the process was asked to end.
	EndRequested
	// WorkReleased holds once the drain of this Shutdown is over.
	WorkReleased
	// Held holds while an operator drains this worker.
	Held
)

// factNames has for each fact how it reads when it holds and when it does not.
var factNames = []struct {
	fact    Facts
	yes, no string
}{
	{WorkReleased, "drained", "still draining"},
	{EndRequested, "end requested", "no end requested"},
	{EventStands, "event stands", "event withdrawn"},
	{Held, "held", "not held"},
	{WasWarm, "was warm", "never warm"},
}

// Has reports whether all of want hold.
func (f Facts) Has(want Facts) bool {
	return f&want == want
}

// after returns the facts that hold once e has happened.
func (f Facts) after(e Event) Facts {
	switch e {
	case Warm:
		return f | WasWarm
	case Notice:
		return f | EventStands
	case Withdrawn:
		return f &^ EventStands
	case Hold:
		return f | Held
	case Unhold:
		return f &^ Held
	case Terminate:
		return f | EndRequested
	case Drained:
		return f | WorkReleased
	default:
		return f
	}
}

// describe names the facts that hold and the facts that do not, as in "drained,
// never warm".
func describe(has, lacks Facts) string {
	var words []string
	for _, name := range factNames {
		switch {
		case has.Has(name.fact):
			words = append(words, name.yes)
		case lacks.Has(name.fact):
			words = append(words, name.no)
		}
	}
	return strings.Join(words, ", ")
}
