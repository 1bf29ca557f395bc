package preempt

import (
	"cmp"
	"fmt"
	"time"
)

// Budgets of a drain: the time from now until all jobs have to be saved and released.
const (
	// DrainBudget is the longest budget, even if NotBefore allows more: VMs have
	// stopped less than 10 s after the notice (karpenter-provider-azure#1769).
	DrainBudget = 10 * time.Second

	// MinBudget is the shortest budget for an event that has not started. NotBefore is
	// the earliest start, not the start, and two seconds are enough to save most jobs.
	MinBudget = 2 * time.Second

	// StartedBudget is the budget for an event that has started: the VM may stop at
	// any moment, so only quick saves are worth trying.
	StartedBudget = time.Second

	// DrainMargin is how long before NotBefore the drain begins at the latest if the
	// notice leaves minutes: three times the longest budget.
	DrainMargin = 30 * time.Second
)

// shortFreeze is the shortest pause that is worth a checkpoint. Memory survives a
// freeze, so shorter ones need none; a typical one lasts 7 s (azure-compute-docs,
// scheduled-events).
const shortFreeze = 9 * time.Second

// verdictOn returns the meaning of one event. It covers every type and status, also
// unknown ones.
func verdictOn(e Event, now time.Time) Verdict {
	switch e.Type {
	case TypePreempt:
		budget, reason := preemptBudget(e, now)
		return Verdict{Action: Drain, Budget: budget, Event: e, Reason: reason}
	case TypeRebalance:
		return advisoryVerdict(e)
	}
	if e.Status == StatusAdvisory {
		return advisoryVerdict(e)
	}
	switch e.Type {
	case TypeTerminate, TypeReboot, TypeRedeploy:
		return endVerdict(e, now)
	case TypeFreeze:
		return freezeVerdict(e)
	default:
		reason := typeName(e) + " is not known to this version: the jobs are saved, in case it is an end"
		return Verdict{Action: CheckpointNow, Event: e, Reason: reason}
	}
}

// preemptBudget returns the budget of a drain and its reason. Any status but Started
// counts as announced: no unexpected text makes the worker ignore a Preempt.
func preemptBudget(e Event, now time.Time) (time.Duration, string) {
	switch {
	case e.Status == StatusStarted:
		return StartedBudget, "the eviction has started"
	case e.NotBefore.IsZero():
		return DrainBudget, "an eviction is announced, its time is not known"
	default:
		return drainWithin(e.NotBefore.Sub(now)), fmt.Sprintf("an eviction is announced for %s or later", e.NotBefore.Format(time.RFC3339))
	}
}

// drainWithin returns the budget of a drain if the VM may stop after left.
func drainWithin(left time.Duration) time.Duration { return min(max(left, MinBudget), DrainBudget) }

// endVerdict is the verdict on an event other than an eviction that ends all work on the
// VM. An event that a user requested starts a drain at once. An event that the platform
// announced leaves time, unless that is short or not known.
func endVerdict(e Event, now time.Time) Verdict {
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
		v.Reason = announcementReason(e)
	default:
		v.Action, v.Budget = DrainBy, left
		v.Reason = announcementReason(e)
	}
	return v
}

// announcementReason has no time that is left: the text must be the same as long as the event is.
func announcementReason(e Event) string {
	return fmt.Sprintf("%s is announced for %s or later", typeName(e), e.NotBefore.Format(time.RFC3339))
}

// freezeVerdict is the verdict on a pause, after which everything continues. It can be
// acknowledged until it has started.
func freezeVerdict(e Event) Verdict {
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

// advisoryVerdict is the verdict on a warning that an eviction is more likely now. Most
// such VMs run for minutes to hours more, and an acknowledgement has no effect.
func advisoryVerdict(e Event) Verdict {
	return Verdict{
		Action: CheckpointNow, Advisory: true, Event: e,
		Reason: fmt.Sprintf("%s advises that this VM may be evicted soon", typeName(e)),
	}
}

func typeName(e Event) string { return cmp.Or(e.Type, "an event without a type") }

// Leave turns a DrainBy into the drain at its end, which starts when left is the time
// until the VM may stop.
func (v Verdict) Leave(left time.Duration) Verdict {
	v.Action, v.Budget, v.Reason = Drain, drainWithin(left), announcementReason(v.Event)
	return v
}
