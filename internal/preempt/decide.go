package preempt

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Action is what a worker has to do about an event. The order is that of
// urgency: of several, the greatest wins.
type Action int

const (
	// CarryOn means that work goes on as before.
	CarryOn Action = iota

	// CheckpointNow means to save every job at once, and to go on working.
	CheckpointNow

	// DrainBy means that the VM will be gone after the verdict's Budget, which
	// is minutes or days: work goes on while it can still be finished, and
	// everything is to be released [DrainMargin] before the end.
	DrainBy

	// Drain means to stop taking work, stop working, save and release, all
	// within the budget.
	Drain
)

// String returns the action as it appears in logs.
func (a Action) String() string {
	switch a {
	case CarryOn:
		return "carry on"
	case CheckpointNow:
		return "checkpoint now"
	case DrainBy:
		return "drain by"
	case Drain:
		return "drain"
	default:
		return fmt.Sprintf("Action(%d)", int(a))
	}
}

// Verdict is what one event means for this VM.
type Verdict struct {
	Action Action

	// Budget is how long from the decision's now a Drain may take, or a DrainBy
	// has until the VM may go; zero for any other action.
	Budget time.Duration

	// Acknowledge says that the event need not wait for its NotBefore once the
	// action is carried out.
	Acknowledge bool

	// Advisory says that nothing is announced, but that the VM is likelier to
	// be evicted from now on: it should take no more work than it can start.
	Advisory bool

	// Event is the event judged, zero if there was none.
	Event Event

	// Reason is a short text for the log.
	Reason string
}

// Decision is what a document means for this VM: the embedded Verdict is the
// most urgent one, with the least budget of all that call for the same action.
type Decision struct {
	Verdict

	// Verdicts holds one for every event that names this VM, the most urgent
	// first.
	Verdicts []Verdict
}

// Decide says what doc means for the VM self at now, a time of the service's
// clock ([Document.Now]).
//
// Only events that name self count, and all of them are judged together. Where the
// name of self is not known, an eviction of any VM of the group calls for a
// checkpoint: it may be that of this VM.
// A decision holds for this document only: a drain whose event is missing from
// a later document has been withdrawn, and shows as a later decision to do
// something less urgent. Each row of the table in docs/evictions.md is
// a case of judge.
func Decide(doc Document, self Identity, now time.Time) Decision {
	if self.Name == "" {
		return decideWithoutName(doc)
	}
	var verdicts []Verdict
	for _, e := range doc.Events {
		if e.Names(self) {
			verdicts = append(verdicts, judge(e, now))
		}
	}
	if len(verdicts) == 0 {
		return Decision{Verdict: Verdict{Reason: "no event names this VM"}}
	}
	slices.SortStableFunc(verdicts, byUrgency)
	d := Decision{Verdict: verdicts[0], Verdicts: verdicts}
	for _, v := range verdicts {
		if v.Action == d.Action {
			d.Budget = min(d.Budget, v.Budget)
		}
	}
	return d
}

// decideWithoutName is for a VM that does not know its name. To drain for each
// eviction of a neighbour would stop a whole scale set; to save costs little.
func decideWithoutName(doc Document) Decision {
	var d Decision
	for _, e := range doc.Events {
		if e.Type != TypePreempt {
			continue
		}
		d.Verdicts = append(d.Verdicts, Verdict{
			Action: CheckpointNow, Event: e, Reason: "an eviction is announced, which may be that of this VM: its name is not known",
		})
	}
	if len(d.Verdicts) == 0 {
		d.Reason = "the name of this VM is not known yet"
		return d
	}
	d.Verdict = d.Verdicts[0]
	return d
}

// byUrgency puts the greater action first, of two equal ones an eviction, since
// nothing comes back from it, and then that with less time.
func byUrgency(a, b Verdict) int {
	return cmp.Or(cmp.Compare(b.Action, a.Action), byKind(a, b), cmp.Compare(a.Budget, b.Budget))
}

func byKind(a, b Verdict) int {
	isPreempt := func(v Verdict) int {
		if v.Event.Type == TypePreempt {
			return 0
		}
		return 1
	}
	return cmp.Compare(isPreempt(a), isPreempt(b))
}

// Advised reports whether an advisory stands.
func (d Decision) Advised() bool {
	return slices.ContainsFunc(d.Verdicts, func(v Verdict) bool { return v.Advisory })
}

// Departure returns the verdict on the event that will take the VM away first
// among those that leave time, and whether there is one. It stands also while a
// more urgent event is handled.
func (d Decision) Departure() (Verdict, bool) {
	for _, v := range d.Verdicts {
		if v.Action == DrainBy {
			return v, true
		}
	}
	return Verdict{}, false
}

// Acknowledgement says that an event may be let go ahead, and after what.
type Acknowledgement struct {
	Event Event

	// After is what has to be carried out before: nothing for CarryOn, every
	// job saved for CheckpointNow, everything released for the others.
	After Action
}

// Acknowledgements lists the events that may be let go ahead. While a drain is
// called for, none of them may before its end: the events of one document are
// handled together, and a VM that freezes cannot release its jobs.
func (d Decision) Acknowledgements() []Acknowledgement {
	var list []Acknowledgement
	for _, v := range d.Verdicts {
		if !v.Acknowledge {
			continue
		}
		after := v.Action
		if d.Action == Drain {
			after = Drain
		}
		list = append(list, Acknowledgement{Event: v.Event, After: after})
	}
	return list
}
