package preempt

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Action is the worker's reaction to an event. Actions are ordered by urgency: of
// several, the greatest wins.
type Action int

const (
	// CarryOn means to continue as before.
	CarryOn Action = iota

	// CheckpointNow means to save every job at once, and to continue working.
	CheckpointNow

	// DrainBy means that the VM will stop after the verdict's Budget, which is minutes
	// or days: the worker continues with jobs that can finish before, and has to
	// release all of them [DrainMargin] before the end.
	DrainBy

	// Drain means to stop claiming messages, stop the jobs, save and release them, all
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

// Verdict is the meaning of one event for this VM.
type Verdict struct {
	Action Action

	// Budget is how long a Drain may take, or the time until the VM may stop for a
	// DrainBy, counted from the decision's now; zero for any other action.
	Budget time.Duration

	// Acknowledge means that the event may start before its NotBefore once the action
	// is done.
	Acknowledge bool

	// Advisory means that no event is announced, but that an eviction is more likely
	// from now on: the worker should claim no more messages than it can start.
	Advisory bool

	// Event is the event that the verdict is on, zero if there was none.
	Event Event

	// Reason is a short text for the log.
	Reason string
}

// Decision is the meaning of a document for this VM: the embedded Verdict is the most
// urgent one, with the least budget of all that call for the same action.
type Decision struct {
	Verdict

	// Verdicts holds one for every event that names this VM, the most urgent
	// first.
	Verdicts []Verdict

	// Again is the time after which the same document calls for more, if the name of this
	// VM is not known; otherwise zero, because Departure tells it.
	Again time.Duration
}

// Decide returns what doc means for the VM self at now, a time of the service's clock
// ([Document.Now]).
//
// Only events that name self count. While the name of self is unknown, an event of any VM
// of the group calls for a checkpoint if it may be about this VM and calls for anything
// within [DrainMargin].
//
// A decision holds for this document only: a drain whose event is missing from a later
// document was withdrawn, and the later decision is less urgent. Each row of the table
// in docs/evictions.md is a case of verdictOn.
func Decide(doc Document, self Identity, now time.Time) Decision {
	if self.Name == "" {
		return decideWithoutName(doc, now)
	}
	var verdicts []Verdict
	for _, e := range doc.Events {
		if e.Names(self) {
			verdicts = append(verdicts, verdictOn(e, now))
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

// decideWithoutName decides for a VM whose name is unknown. To drain on each event of
// another VM would stop a whole scale set; to save costs little. While an event stands
// that calls for a drain of its VM, what changes is saved soon.
func decideWithoutName(doc Document, now time.Time) Decision {
	d := Decision{Verdict: Verdict{Reason: "the name of this VM is not known yet"}}
	for _, e := range doc.Events {
		v := verdictOn(e, now)
		switch v.Action {
		case CarryOn:
		case DrainBy:
			if wait := v.Budget - DrainMargin; d.Again == 0 || wait < d.Again {
				d.Again = wait
			}
		case CheckpointNow, Drain:
			d.Verdicts = append(d.Verdicts, Verdict{
				Action: CheckpointNow, Advisory: v.Advisory || v.Action == Drain, Event: e,
				Reason: v.Reason + "; it may be about this VM, whose name is not known",
			})
		}
	}
	if len(d.Verdicts) > 0 {
		d.Verdict = d.Verdicts[0]
	}
	return d
}

// byUrgency sorts the greater action first; of two equal ones an eviction, since it is
// final; and then the shorter budget.
func byUrgency(a, b Verdict) int {
	return cmp.Or(cmp.Compare(b.Action, a.Action), evictionsFirst(a, b), cmp.Compare(a.Budget, b.Budget))
}

func evictionsFirst(a, b Verdict) int {
	isPreempt := func(v Verdict) int {
		if v.Event.Type == TypePreempt {
			return 0
		}
		return 1
	}
	return cmp.Compare(isPreempt(a), isPreempt(b))
}

// Advised reports whether there is an advisory.
func (d Decision) Advised() bool {
	return slices.ContainsFunc(d.Verdicts, func(v Verdict) bool { return v.Advisory })
}

// Departure returns the verdict on the event that will stop the VM first, among events
// that leave time, and whether there is one. It also does while a more urgent event is
// handled.
func (d Decision) Departure() (Verdict, bool) {
	for _, v := range d.Verdicts {
		if v.Action == DrainBy {
			return v, true
		}
	}
	return Verdict{}, false
}

// Acknowledgement is an event that may start early, and the condition for that.
type Acknowledgement struct {
	Event Event

	// After is the action that has to be done before: nothing for CarryOn, every job
	// saved for CheckpointNow, every job released for the others.
	After Action
}

// Acknowledgements lists the events that may start early. If the decision is to drain,
// none of them may before the drain has ended: a frozen VM cannot release its jobs.
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
