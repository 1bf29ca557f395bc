package deadline

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// DefaultChangeover is the assumption if a deployment's changeover is unknown: some
// minutes for a scale set to notice the message, and for a VM to start.
const DefaultChangeover = 10 * time.Minute

// Job holds the known facts of a job at the moment of the judgement.
type Job struct {
	// Now and Deadline should be by one clock, or by clocks that agree. Without a
	// deadline there is nothing to judge.
	Now, Deadline time.Time

	// Began is when a worker claimed the job for the first time: time in the queue before
	// that says nothing about Spot VMs. It may be by another clock; one in the future
	// counts as now.
	Began time.Time

	// Estimate is how long the work takes on a VM that nothing interrupts; 0 if that is
	// not known.
	Estimate time.Duration

	// RunTime is how long handlers ran for the job so far, repeated work included.
	RunTime time.Duration

	// Fraction is how much of the work is done, 0 to 1, as its handler reported; 0 if it
	// did not.
	Fraction float64

	// HasState says that the job resumes from a state. Otherwise it begins again, and
	// its work so far is lost.
	HasState bool

	// Waited is how long the job waited for the slot that it had last: the next one may take
	// as long.
	Waited time.Duration

	// Losses counts the times that it lost its VM, this one included if it loses it now.
	Losses int
}

// Risk is whether a job will meet its deadline.
type Risk string

// The risks.
const (
	None   Risk = ""        // it has no deadline
	OnTime Risk = "on time" // it can afford at least one more interruption
	Tight  Risk = "tight"   // it cannot
	Behind Risk = "behind"  // it can, but is below the line
	Late   Risk = "late"    // no VM can meet the deadline
)

// AtRisk reports whether the job may miss its deadline, and still can meet it.
func (r Risk) AtRisk() bool { return r == Tight || r == Behind }

// Verdict is the result of a judgement.
type Verdict struct {
	Risk Risk

	// Left is how long the work that is left takes on a VM that nothing interrupts, as
	// far as can be told, and Total how long all of the work does.
	Left, Total time.Duration

	// Known says that Left follows from an estimate or a reported fraction.
	Known bool

	// Why is the reason for people; empty for [None].
	Why string

	spare time.Duration // time until the deadline beyond Left
	move  time.Duration // the time that a move takes
}

// MovesOnRelease reports whether a job that loses its VM now moves to the on-demand
// queue. A job that is late anyway does not: a move would cost more and save nothing.
func (v Verdict) MovesOnRelease() bool { return v.Risk.AtRisk() }

// MovesOnClaim reports whether a job that lost a VM before, and has a slot on a Spot VM
// now, should rather move. Having a VM it uses it, also below the line. Where the time is
// too short for a move, this VM is its best chance.
func (v Verdict) MovesOnClaim() bool { return v.Risk == Tight && v.spare >= v.move }

// MovesWaiting reports whether a job that waits without a VM moves. Below the line it may
// wait for a Spot VM as long as it can afford to.
func (v Verdict) MovesWaiting() bool { return v.Risk == Tight }

// reach is how many times the time until the deadline the work that is left may take
// before the deadline counts as out of reach: estimates are often too high.
const reach = 2

// Judge judges a job. changeover is how long a job that moves waits until it runs again:
// for the scale set, the start of a VM, and the restore of its state.
func Judge(j Job, changeover time.Duration) Verdict {
	if j.Deadline.IsZero() {
		return Verdict{}
	}
	changeover = max(changeover, 0)
	w := workOf(j)
	until := j.Deadline.Sub(j.Now)
	v := Verdict{Left: w.left, Total: w.total(), Known: w.known, spare: until - w.left, move: changeover}
	elapsed := max(j.Now.Sub(j.Began), 0)
	reserve := changeover + max(changeover, within(j.Waited), perLoss(elapsed-w.done, j.Losses))
	due := share(w.total(), elapsed, elapsed+until) // the work that should be done by now
	switch {
	case until <= 0:
		v.Risk, v.Why = Late, fmt.Sprintf("the deadline passed %s ago", short(-until))
	case w.left/reach > until:
		v.Risk, v.Why = Late, fmt.Sprintf("the deadline is in %s and cannot be met: about %s of work are left", short(until), short(w.left))
	case v.spare < reserve:
		v.Risk, v.Why = Tight, fmt.Sprintf("the deadline is in %s, about %s of work are left, and a move after one more interruption takes %s",
			short(until), short(w.left), short(reserve))
	case w.done < due-2*changeover:
		v.Risk, v.Why = Behind, fmt.Sprintf("%.0f %% of the time to its deadline have passed, and %.0f %% of its work are done",
			percent(elapsed, elapsed+until), percent(w.done, w.total()))
	default:
		v.Risk, v.Why = OnTime, fmt.Sprintf("the deadline is in %s, and about %s of work are left", short(until), short(w.left))
	}
	return v
}

// perLoss returns the time that each loss of a VM has cost so far, on average: the
// time in which the job was not worked on, or did work that was lost.
func perLoss(lost time.Duration, losses int) time.Duration {
	if lost <= 0 || losses <= 0 {
		return 0
	}
	return lost / time.Duration(losses)
}

// share returns the part of total that a part of a whole is.
func share(total, part, whole time.Duration) time.Duration {
	if whole <= 0 {
		return total
	}
	return bounded(total.Seconds() * part.Seconds() / whole.Seconds())
}

func percent(part, whole time.Duration) float64 {
	if whole <= 0 {
		return 0
	}
	return math.Min(100*part.Seconds()/whole.Seconds(), 100)
}

// short is a duration for people, in seconds, and in minutes from an hour on.
func short(d time.Duration) string {
	unit := time.Second
	if d >= time.Hour {
		unit = time.Minute
	}
	text := d.Round(unit).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
