package overview

import (
	"fmt"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/delivery/deadline"
)

// Outlook judges whether a job that has not ended will meet its deadline, as a worker
// would if the job lost its VM now. The time is the storage service's. A job that moved to
// VMs of regular priority is not interrupted any more.
func Outlook(j client.Job) deadline.Verdict {
	known := deadline.Job{
		Now: j.ReadAt, Deadline: j.Deadline, Began: j.CreatedAt, Estimate: j.Estimate, RunTime: j.RunTime, Fraction: j.Fraction,
		HasState: j.StateSize > 0, Losses: max(j.Deliveries-j.TotalFailures, 0),
	}
	changeover := deadline.DefaultChangeover
	switch j.Status {
	case client.StatusRunning:
		known.RunTime += max(j.Age(), 0) // since the last write
	case client.StatusOpen:
		known.Losses = max(known.Losses-1, 0) // the next one comes after the next claim
	default:
		return deadline.Verdict{}
	}
	if j.MoveReason != "" {
		known.Losses, changeover = 0, 0
	}
	return deadline.Judge(known, changeover)
}

// ExpectedEnd returns when a running job should end if nothing interrupts it, and false if
// nothing is known of the work that is left.
func ExpectedEnd(j client.Job) (time.Time, bool) {
	if j.Status != client.StatusRunning {
		return time.Time{}, false
	}
	if v := Outlook(j); v.Known {
		return j.ReadAt.Add(v.Left), true
	}
	left, ok := TimeLeft(j)
	return j.ReadAt.Add(left), ok
}

// Punctuality counts the jobs that have not ended, by whether they will meet their
// deadlines.
type Punctuality struct {
	AtRisk int // they may miss it
	Late   int // they cannot meet it any more
}

// Add counts a job.
func (p *Punctuality) Add(j client.Job) {
	switch risk := Outlook(j).Risk; {
	case risk == deadline.Late:
		p.Late++
	case risk.AtRisk():
		p.AtRisk++
	}
}

// String says how many jobs are at risk or late; empty if none is.
func (p Punctuality) String() string {
	atRisk := count(p.AtRisk, "job may miss its deadline", "jobs may miss their deadlines")
	late := count(p.Late, "job cannot meet its deadline", "jobs cannot meet their deadlines")
	switch {
	case p.AtRisk > 0 && p.Late > 0:
		return fmt.Sprintf("%s, and %s any more", atRisk, late)
	case p.AtRisk > 0:
		return atRisk
	case p.Late > 0:
		return late + " any more"
	}
	return ""
}
