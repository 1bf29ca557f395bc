package checkpoint

import (
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/runs"
	"github.com/spotworker/spotworker/internal/jobid"
)

// FollowUps names the first follow-up jobs that a job has put: at most maxFollowUps ids with
// commas between them, then moreFollowUps if there are more. It decides nothing.
type FollowUps string

const (
	maxFollowUps  = 8
	moreFollowUps = "*"
)

// IDs returns the ids, and whether the job has put more jobs. Text that is no id is left out.
func (f FollowUps) IDs() (ids []string, more bool) {
	for part := range strings.SplitSeq(string(f), ",") {
		if part == moreFollowUps {
			return ids, true
		}
		if jobid.Validate(part) == nil {
			ids = append(ids, part)
		}
	}
	return ids, false
}

// With returns the names together with the names of more follow-up jobs. A job that is
// put again by another run of the handler is named once.
func (f FollowUps) With(put FollowUps) FollowUps {
	for next := range strings.SplitSeq(string(put), ",") {
		named := strings.Split(string(f), ",")
		switch {
		case next == "" || slices.Contains(named, next) || slices.Contains(named, moreFollowUps):
		case f == "":
			f = FollowUps(next)
		case len(named) >= maxFollowUps:
			f += "," + moreFollowUps
		default:
			f += FollowUps("," + next)
		}
	}
	return f
}

// trace records in the job's timeline that a write saves a state, or ends its delivery. before is the
// record before the write, and redone the job's lost time before the delivery. A job that ends in its
// first delivery without a save has no timeline.
func (r *Record) trace(before *Record, redone time.Duration, now time.Time) {
	saves, ends := r.HasState() && r.StateHash != before.StateHash, r.Status != Running
	if !saves && !ends || r.Status == Done && r.Generation == 1 && r.Runs == "" {
		return
	}
	run := r.lastRun()
	if saves {
		run.Saves, run.SavedAfter = run.Saves+1, now.Sub(run.Start)
	}
	if ends {
		run.Took, run.Outcome = max(now.Sub(run.Start), time.Millisecond), r.outcome(before)
		run.Redone = r.Ledger.Redone - redone
		if run.Outcome == runs.Failed || run.Outcome == runs.Poison {
			run.Error = inShort(r.Reason)
		}
	}
	r.Runs = r.Runs.With(run)
}

// inShort returns the first and the last line of an error: what failed, and what a traceback ends with.
func inShort(reason string) string {
	reason = strings.TrimSpace(reason)
	first, rest, many := strings.Cut(reason, "\n")
	if !many {
		return reason
	}
	return first + " … " + strings.TrimSpace(rest[strings.LastIndexByte(rest, '\n')+1:])
}

// outcome returns how a delivery ends with a write. before is the record before the write.
func (r *Record) outcome(before *Record) runs.Outcome {
	switch {
	case r.Status == Done:
		return runs.Done
	case r.Status == Poison:
		return runs.Poison
	case r.Ledger.Evictions > before.Ledger.Evictions:
		return runs.Evicted
	case r.Interruptions > before.Interruptions:
		return runs.Interrupted
	case r.FailuresTotal > before.FailuresTotal:
		return runs.Failed
	}
	return runs.Ended
}

// lastRun returns the entry of the last delivery in the timeline.
func (r *Record) lastRun() runs.Run {
	if run, ok := r.Runs.Last(r.Generation); ok {
		return run
	}
	return runs.Run{Delivery: r.Generation, Worker: r.Owner, Start: r.ClaimedAt}
}

// runEnded returns the timeline with an end of the running delivery that somebody else records.
func (r *Record) runEnded(outcome runs.Outcome, end time.Time) runs.List {
	if r.ClaimedAt.IsZero() {
		return r.Runs // of another program
	}
	run := r.lastRun()
	run.Outcome, run.Took = outcome, max(end.Sub(run.Start), run.SavedAfter, time.Millisecond)
	if outcome == runs.Lost {
		run.Redone = run.Took - run.SavedAfter
	}
	return r.Runs.With(run)
}
