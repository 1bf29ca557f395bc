package jobs

import (
	"slices"
	"time"
)

// trace is a handler's own trace of one run of a job whose work is numbered steps.
type trace struct {
	// Began is when the handler was called, and Ended when it returned, or when its
	// process died.
	Began, Ended time.Time

	// From is how many steps were done in the state that it began with; 0 without one.
	// Steps are the times at which it reported the next ones.
	From  int
	Steps []time.Time

	// Finished says that it returned the job's result.
	Finished bool
}

// worked is the time of a job's handlers, and the share of it for steps that the outcome
// rests on.
type worked struct {
	Ran, Useful time.Duration
}

// lost is the time for repeated work, and for work that led nowhere.
func (w worked) lost() time.Duration { return w.Ran - w.Useful }

// add adds the work of another job.
func (w *worked) add(o worked) {
	w.Ran += o.Ran
	w.Useful += o.Useful
}

// measure returns the work of a job from the traces of all its runs. Of the last run that
// finished all is useful. Of the run that made the state from which it began, the time up to
// the report of that state is, and so on back to a run that began without one.
func measure(runs []trace) (w worked) {
	runs = slices.SortedFunc(slices.Values(runs), func(a, b trace) int { return a.Began.Compare(b.Began) })
	for _, r := range runs {
		w.Ran += r.Ended.Sub(r.Began)
	}
	last := len(runs) - 1
	for last >= 0 && !runs[last].Finished {
		last--
	}
	if last < 0 {
		return w
	}
	w.Useful = runs[last].Ended.Sub(runs[last].Began)
	for next := runs[last]; next.From > 0; {
		i := last - 1
		for i >= 0 && !runs[i].made(next) {
			i--
		}
		if i < 0 {
			return w // its run left no trace
		}
		w.Useful += runs[i].Steps[next.From-runs[i].From-1].Sub(runs[i].Began)
		last, next = i, runs[i]
	}
	return w
}

// made reports whether a run can have made the state from which next began.
func (r trace) made(next trace) bool {
	step := next.From - r.From - 1
	return step >= 0 && step < len(r.Steps) && !r.Steps[step].After(next.Began)
}
