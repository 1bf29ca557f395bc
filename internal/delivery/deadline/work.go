package deadline

import "time"

// What makes a reported fraction sound: before, the start of a job counts for too much.
const (
	soundFraction = 0.05
	soundRunTime  = time.Minute
)

// overrunShare is the share of the larger of estimate and run time that is taken to be
// left at least of a job that reports no fraction.
const overrunShare = 10

// longest is longer than any work, and far below the largest time.Duration.
const longest = 100 * 365 * 24 * time.Hour

// work is the work of a job, done and left, as time on a VM that nothing interrupts.
type work struct {
	done, left time.Duration
	known      bool
}

func (w work) total() time.Duration { return w.done + w.left }

// workOf returns the work done and left of a job, from the soundest source there is:
//
//   - the handler's fraction, once it is sound: the run time up to it, and the rest at
//     the same speed. An estimate that is wrong no longer counts.
//   - the estimate, for the part that is not done by the fraction, or less the run time
//     where no fraction was reported. A job that has run for longer has at least a tenth
//     of that before it.
//   - a fraction alone, however small.
//   - nothing: then as much is left as it has run so far.
//
// A job without a state begins again: all of its work is left. Without an estimate that is
// its run time so far.
func workOf(j Job) work {
	estimate, ran, fraction := within(j.Estimate), within(j.RunTime), clamp(j.Fraction)
	byFraction := func() work {
		all := max(bounded(ran.Seconds()/fraction), ran)
		return work{done: ran, left: all - ran, known: true}
	}
	switch {
	case !j.HasState && estimate > 0:
		return work{left: estimate, known: true}
	case !j.HasState:
		return work{left: ran}
	case fraction >= soundFraction && ran >= soundRunTime:
		return byFraction()
	case estimate > 0 && fraction > 0:
		left := min(bounded(estimate.Seconds()*(1-fraction)), estimate) // seconds are rounded
		return work{done: estimate - left, left: left, known: true}
	case estimate > 0:
		return work{done: ran, left: max(estimate-ran, max(estimate, ran)/overrunShare), known: true}
	case fraction > 0 && ran > 0:
		return byFraction()
	default:
		return work{done: ran, left: ran}
	}
}

func within(d time.Duration) time.Duration { return min(max(d, 0), longest) }

// bounded returns a number of seconds as a duration, longest at most.
func bounded(seconds float64) time.Duration {
	if !(seconds > 0) {
		return 0
	}
	return time.Duration(min(seconds, longest.Seconds()) * float64(time.Second))
}

// clamp limits a fraction to 0…1; NaN is 0.
func clamp(f float64) float64 {
	if !(f > 0) {
		return 0
	}
	return min(f, 1)
}
