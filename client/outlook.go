package client

import (
	"time"

	"github.com/spotworker/spotworker/internal/delivery/deadline"
)

// Risk is whether a job that has not ended will meet its deadline.
type Risk string

// The risks.
const (
	RiskNone   Risk = Risk(deadline.None)   // the job has no deadline, or has ended
	RiskOnTime Risk = Risk(deadline.OnTime) // it can afford at least one more interruption
	RiskTight  Risk = Risk(deadline.Tight)  // it cannot
	RiskBehind Risk = Risk(deadline.Behind) // it can, but has done too little of its work so far
	RiskLate   Risk = Risk(deadline.Late)   // it cannot meet the deadline on any VM
)

// AtRisk reports whether the job may miss its deadline, and still can meet it.
func (r Risk) AtRisk() bool { return deadline.Risk(r).AtRisk() }

// Risk judges whether a job that has not ended will meet its deadline, as a worker would if
// the job lost its VM at [Job.ReadAt]. why is the reason for people, and empty for
// [RiskNone].
func (j Job) Risk() (risk Risk, why string) {
	v := j.outlook()
	return Risk(v.Risk), v.Why
}

// TimeLeft estimates how much longer a running job takes: from [Job.Live] if that has the
// handler's progress in this delivery, else from the record. It returns false if there is no
// basis for an estimate.
func (j Job) TimeLeft() (time.Duration, bool) {
	if j.Status != StatusRunning {
		return 0, false
	}
	if j.Live != nil {
		if left, ok := j.Live.timeLeft(); ok {
			return left, true
		}
	}
	ran := j.ranFor()
	if j.Fraction <= 0 || j.Fraction >= 1 || ran <= 0 {
		return 0, false
	}
	left := atSpeed(ran, j.Fraction, 1-j.Fraction) - j.Age()
	return max(0, left), left >= 0 // a record that is older is of a run that may be over
}

// longestLeft is longer than any job runs, and far below the largest time.Duration.
const longestLeft = 100 * 365 * 24 * time.Hour

// atSpeed returns how long a part of the work takes if another part took so long.
func atSpeed(took time.Duration, part, rest float64) time.Duration {
	return time.Duration(min(took.Seconds()*rest/part, longestLeft.Seconds()) * float64(time.Second))
}

// ranFor returns how long handlers took for the recorded fraction. A job without a state began
// again with its last claim: the run times of its earlier deliveries do not count.
func (j Job) ranFor() time.Duration {
	if j.StateSize > 0 || j.Deliveries-j.Again <= 1 || j.ClaimedAt.IsZero() {
		return j.RunTime
	}
	return min(j.RunTime, max(j.UpdatedAt.Sub(j.ClaimedAt), 0))
}

// ExpectedEnd returns when a running job should end if nothing interrupts it, and false if
// nothing is known about the work that is left.
func (j Job) ExpectedEnd() (time.Time, bool) {
	if j.Status != StatusRunning {
		return time.Time{}, false
	}
	if v := j.outlook(); v.Known {
		return j.ReadAt.Add(v.Left), true
	}
	left, ok := j.TimeLeft()
	return j.ReadAt.Add(left), ok
}

// shortTerm is the part of the time from the first claim to the deadline that a changeover
// takes at most in a judgement: one tenth. With a changeover of ten minutes each job with a
// deadline of less than 22 minutes would be at risk.
const shortTerm = 10

// outlook judges a job that has not ended. The time is the storage service's. A job that
// moved to VMs of regular priority is no longer interrupted.
func (j Job) outlook() deadline.Verdict {
	if j.Status == StatusOpen && j.Deliveries == j.Again && (j.Again > 0 || j.Group != "") {
		return deadline.Verdict{} // no worker has claimed it: like a job that has no record yet
	}
	known := deadline.Job{
		Now: j.ReadAt, Deadline: j.Deadline, Began: j.CreatedAt, Estimate: j.Estimate, RunTime: j.RunTime, Fraction: j.Fraction,
		HasState: j.StateSize > 0, Losses: max(j.Deliveries-j.Again-j.TotalFailures, 0),
	}
	changeover := min(deadline.DefaultChangeover, j.Deadline.Sub(j.CreatedAt)/shortTerm)
	switch j.Status {
	case StatusRunning:
		known.RunTime += max(j.Age(), 0) // since the last write
	case StatusOpen:
		known.Losses = max(known.Losses-1, 0) // the next one comes after the next claim
	default:
		return deadline.Verdict{}
	}
	if j.MoveReason != "" {
		known.Losses, changeover = 0, 0
	}
	return deadline.Judge(known, changeover)
}
