package checkpoint

import (
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/runs"
)

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
	}
	r.Runs = r.Runs.With(run)
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
	if outcome == runs.Lost && (run.Saves > 0 || !r.Progressed) { // an older worker's saves are not known
		run.Redone = run.Took - run.SavedAfter
	}
	return r.Runs.With(run)
}
