package preempt

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Budgets of a drain: how long this VM may take from now until everything is
// released.
const (
	// DrainBudget is the most a drain may take, also where NotBefore would
	// allow more: in the field VMs were gone in less than 10 s after the
	// notice (karpenter-provider-azure#1769).
	DrainBudget = 10 * time.Second

	// MinBudget is the least for an event that has not started. NotBefore is
	// the earliest start, not the start, and two seconds save most of the work.
	MinBudget = 2 * time.Second

	// StartedBudget is for an event that has started: the VM may stop at any
	// moment, so only what is quick to save is worth trying.
	StartedBudget = time.Second
)

// Action is what a worker has to do about an event. The order is that of
// urgency: of several, the greatest wins.
type Action int

const (
	// CarryOn means that work goes on as before.
	CarryOn Action = iota

	// Drain means to stop taking work, stop working, save and release, all
	// within the budget.
	Drain
)

// String returns the action as it appears in logs.
func (a Action) String() string {
	switch a {
	case CarryOn:
		return "carry on"
	case Drain:
		return "drain"
	default:
		return fmt.Sprintf("Action(%d)", int(a))
	}
}

// Verdict is what one event means for this VM.
type Verdict struct {
	Action Action

	// Budget is how long a Drain may take from the decision's now; zero for
	// any other action.
	Budget time.Duration

	// Event is the event judged, zero if there was none.
	Event Event

	// Reason is a short text for the log.
	Reason string
}

// Decision is what a document means for this VM: the embedded Verdict is the
// most urgent one.
type Decision struct {
	Verdict

	// Verdicts holds one for every event that names this VM, the most urgent
	// first.
	Verdicts []Verdict
}

// Decide says what doc means for the VM self at now, a time of the service's
// clock ([Document.Now]).
//
// Only events that name self count, and all of them are judged together.
// A decision holds for this document only: a drain whose event is missing from
// a later document has been withdrawn, and shows as a later decision to carry
// on.
//
// Only Preempt stops a VM's work today. Other types are noted, with a reason.
func Decide(doc Document, self Identity, now time.Time) Decision {
	if self.Name == "" {
		return Decision{Verdict: Verdict{Reason: "the name of this VM is not known yet"}}
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
	return Decision{Verdict: verdicts[0], Verdicts: verdicts}
}

// byUrgency puts the greater action first, and of two equal ones that with
// less time.
func byUrgency(a, b Verdict) int {
	return cmp.Or(cmp.Compare(b.Action, a.Action), cmp.Compare(a.Budget, b.Budget))
}

func judge(e Event, now time.Time) Verdict {
	switch e.Type {
	case TypePreempt:
		budget, reason := preemptBudget(e, now)
		return Verdict{Action: Drain, Budget: budget, Event: e, Reason: reason}
	default:
		return Verdict{Event: e, Reason: fmt.Sprintf("%s noted, only %s stops the work", typeName(e), TypePreempt)}
	}
}

// preemptBudget returns the time for a drain, and why that much. Any status but
// Started reads as announced: a Preempt is never ignored for its wording.
func preemptBudget(e Event, now time.Time) (time.Duration, string) {
	switch {
	case e.Status == StatusStarted:
		return StartedBudget, "the eviction has started"
	case e.NotBefore.IsZero():
		return DrainBudget, "an eviction is announced, its time is not known"
	default:
		left := e.NotBefore.Sub(now)
		reason := fmt.Sprintf("an eviction is announced for %s or later, %s from now",
			e.NotBefore.Format(time.RFC3339), left.Round(time.Millisecond))
		return min(max(left, MinBudget), DrainBudget), reason
	}
}

func typeName(e Event) string { return cmp.Or(e.Type, "an event without a type") }
