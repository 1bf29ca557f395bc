package preempt

import (
	"cmp"
	"fmt"
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

	// DrainMargin is how long before NotBefore the drain begins at the latest
	// where the notice leaves minutes: three times what it may take.
	DrainMargin = 30 * time.Second
)

// shortFreeze is the length of a pause from which on it is worth a checkpoint.
// Memory survives a freeze, so shorter ones are merely sat out; a typical one
// lasts 7 s (azure-compute-docs, scheduled-events).
const shortFreeze = 9 * time.Second

// judge says what one event means. Whatever type or status it has, it has a row.
func judge(e Event, now time.Time) Verdict {
	switch e.Type {
	case TypePreempt:
		budget, reason := preemptBudget(e, now)
		return Verdict{Action: Drain, Budget: budget, Event: e, Reason: reason}
	case TypeRebalance:
		return advisory(e)
	}
	if e.Status == StatusAdvisory {
		return advisory(e)
	}
	switch e.Type {
	case TypeTerminate, TypeReboot, TypeRedeploy:
		return judgeEnd(e, now)
	case TypeFreeze:
		return judgeFreeze(e)
	default:
		reason := typeName(e) + " is not known to this version: the jobs are saved, in case it is an end"
		return Verdict{Action: CheckpointNow, Event: e, Reason: reason}
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
		return drainWithin(left), reason
	}
}

// drainWithin returns the budget of a drain when the VM may go after left.
func drainWithin(left time.Duration) time.Duration { return min(max(left, MinBudget), DrainBudget) }

// judgeEnd is for the events that end what runs on the VM, other than evictions.
// What a person asked for is not kept waiting. What the platform announced
// leaves time, unless that is short or not known.
func judgeEnd(e Event, now time.Time) Verdict {
	left := e.NotBefore.Sub(now)
	v := Verdict{Action: Drain, Acknowledge: true, Event: e}
	switch {
	case e.Status == StatusStarted:
		v.Budget, v.Acknowledge = StartedBudget, false
		v.Reason = fmt.Sprintf("%s has started", typeName(e))
	case e.NotBefore.IsZero():
		v.Budget = DrainBudget
		v.Reason = fmt.Sprintf("%s is announced, its time is not known", typeName(e))
	case e.Source == SourceUser:
		v.Budget = drainWithin(left)
		v.Reason = fmt.Sprintf("a person asked for %s and waits for it", typeName(e))
	case left <= DrainMargin:
		v.Budget = drainWithin(left)
		v.Reason = announced(e, left)
	default:
		v.Action, v.Budget = DrainBy, left
		v.Reason = announced(e, left)
	}
	return v
}

func announced(e Event, left time.Duration) string {
	return fmt.Sprintf("%s is announced for %s or later, %s from now",
		typeName(e), e.NotBefore.Format(time.RFC3339), left.Round(time.Millisecond))
}

// judgeFreeze is for a pause, after which everything goes on where it was. It
// can be acknowledged as long as it has not started.
func judgeFreeze(e Event) Verdict {
	v := Verdict{Event: e, Acknowledge: e.Status != StatusStarted}
	switch {
	case e.Duration == UnknownDuration:
		v.Action = CheckpointNow
		v.Reason = "the VM will be paused, for how long is not known"
	case e.Duration >= shortFreeze:
		v.Action = CheckpointNow
		v.Reason = fmt.Sprintf("the VM will be paused for %s", e.Duration)
	default:
		v.Reason = fmt.Sprintf("the VM will be paused for %s only", e.Duration)
	}
	return v
}

// advisory is for a warning that an eviction has become likelier. Most advised
// VMs live on for minutes to hours, and an acknowledgement has no effect.
func advisory(e Event) Verdict {
	return Verdict{
		Action: CheckpointNow, Advisory: true, Event: e,
		Reason: fmt.Sprintf("%s advises that this VM may be evicted soon", typeName(e)),
	}
}

func typeName(e Event) string { return cmp.Or(e.Type, "an event without a type") }

// Leave turns a DrainBy into the drain that ends it, to be carried out when left
// is what remains until the VM may go.
func (v Verdict) Leave(left time.Duration) Verdict {
	v.Action, v.Budget, v.Reason = Drain, drainWithin(left), announced(v.Event, left)
	return v
}
