package worker

import (
	"maps"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/events"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/job"
)

// Observer is told what happens to a worker and to its jobs, for metrics. The
// words that it gets are from short lists, never the name of a job or a blob.
// Its methods are called from many goroutines at once, also while locks are
// held: they must be quick and must not call the worker.
type Observer interface {
	events.Observer

	// Entered is told of each state of package lifecycle, and of an event that
	// changes only what follows. ending says that the process was asked to end.
	Entered(state string, ending bool)

	// Delivered is told that a message was taken in hand, and Ended once for
	// each of those how that came out: a word of outcomeWords, "moved" for a job
	// that was released to the on-demand queue, or "left" for a message that
	// comes back by itself.
	Delivered()
	Ended(outcome string)

	// Started is told that a handler is called: for the "first" time,
	// "resumed" from a recorded state, or "again" because nothing was recorded.
	Started(how string)

	// Saved is told of an attempt to record a state of that many bytes:
	// "saved", "fenced" because the job is another's by now, or "failed".
	Saved(result string, bytes int64, took time.Duration)

	// Broke is told that the circuit breaker of a kind opened, or opened again, and
	// Recovered that it is closed, for each of the worker's kinds at the start too.
	Broke(kind string)
	Recovered(kind string)

	// Refused is told of a message that was put back because storage refused a blob
	// of its job for good, with the service's error code.
	Refused(code string)

	// LeftOut is told of a job that was let go of without its last state.
	LeftOut()

	// Circles is told of a job that does not come to an end: of its 10th, 20th,
	// 40th ... of "failures" in all, or of "breaks" in a row.
	Circles(cause string)

	// Drained is told that a drain is over, and how long after its notice.
	Drained(reason string, took time.Duration)

	// Blind is told since when no poll has had an answer, and with the zero
	// time that they have again.
	Blind(since time.Time)
}

// unobserved is the Observer of a worker that was given none.
type unobserved struct{}

func (unobserved) Entered(string, bool)               {}
func (unobserved) Delivered()                         {}
func (unobserved) Ended(string)                       {}
func (unobserved) Started(string)                     {}
func (unobserved) Saved(string, int64, time.Duration) {}
func (unobserved) Broke(string)                       {}
func (unobserved) Recovered(string)                   {}
func (unobserved) Refused(string)                     {}
func (unobserved) LeftOut()                           {}
func (unobserved) Circles(string)                     {}
func (unobserved) Announced(string, string)           {}
func (unobserved) Unrecognised()                      {}
func (unobserved) Acknowledged(string)                {}
func (unobserved) Drained(string, time.Duration)      {}
func (unobserved) Polled(time.Time, string)           {}
func (unobserved) Blind(time.Time)                    {}

// The words that an [Observer] hears.
const (
	startedFirst, startedResumed, startedAgain = "first", "resumed", "again"
	savedWell, savedFenced, savedFailed        = "saved", "fenced", "failed"
	circlesByFailures, circlesByBreaks         = "failures", "breaks"
	outcomeMoved, outcomeLeft                  = "moved", "left"
)

// outcomeWords are the outcomes of deliveries as [Observer] hears of them.
var outcomeWords = map[action]string{
	commit: "committed", interrupted: "released", retryLater: "failed", poison: "poisoned", reject: "poisoned",
	alreadyOver: "finished", putBack: "put_back", storageRefused: "put_back", requeue: "gave_way", skip: "gave_way", drop: "dropped",
}

// Words are all that an [Observer] may hear, each list for one of its words.
type Words struct {
	States, Outcomes, Starts, Saves, Circles, Acknowledgements, DrainReasons, PollResults, Refusals []string
}

// ObserverWords returns them.
func ObserverWords() Words {
	w := Words{
		Outcomes:         slices.Compact(slices.Sorted(maps.Values(outcomeWords))),
		Starts:           []string{startedFirst, startedResumed, startedAgain},
		Saves:            []string{savedWell, savedFenced, savedFailed},
		Circles:          []string{circlesByFailures, circlesByBreaks},
		Acknowledgements: events.AcknowledgeResults(),
		DrainReasons:     []string{string(job.Evicted), string(job.Shutdown)},
		Refusals:         checkpoint.PermanentRefusals(),
	}
	w.Outcomes = append(w.Outcomes, outcomeMoved, outcomeLeft)
	for _, state := range lifecycle.States() {
		w.States = append(w.States, state.String())
	}
	for _, result := range preempt.PollResults() {
		w.PollResults = append(w.PollResults, string(result))
	}
	return w
}

// reportOutcome takes note that the delivery came to its end with this outcome.
func (d *delivery) reportOutcome(out outcome) {
	switch out.action {
	case commit:
		d.tally.committed.Add(1)
	case interrupted:
		d.tally.released.Add(1)
	default: // in a drain nothing else is of interest
	}
	if out.action == storageRefused {
		d.Observer.Refused(out.refusal)
	}
	if d.leftOut {
		d.tally.leftOut.Add(1)
		d.Observer.LeftOut()
	}
	word := outcomeWords[out.action]
	if d.moved && out.action == interrupted {
		word = outcomeMoved
	}
	d.Observer.Ended(word)
}

// reportFailures reports a job that failed so often in all that it may circle.
func (d *delivery) reportFailures() {
	if n := d.claim.Record().FailuresTotal; circles(n) {
		d.Observer.Circles(circlesByFailures)
		d.log.Warn("job circles: it keeps failing although it makes progress",
			"failures_total", n, "poison_at", d.jobLimits.WithDefaults().MaxTotalFailures, "fraction", d.claim.Record().Fraction)
	}
}

// reportBreaks reports a job that took so many breaks in a row that it may circle.
func (d *delivery) reportBreaks(out outcome) {
	if n := d.claim.Record().Breaks; out.tookBreak && circles(n) {
		d.Observer.Circles(circlesByBreaks)
		d.log.Warn("job circles: it keeps taking breaks and its fraction does not grow",
			"breaks", n, "poison_at", d.jobLimits.WithDefaults().MaxBreaks, "fraction", d.claim.Record().Fraction)
	}
}

// reportStart takes note that the handler is about to be called.
func (d *delivery) reportStart(record checkpoint.Record, resumed bool) {
	switch {
	case resumed:
		d.Observer.Started(startedResumed)
	case record.Generation > 1:
		d.Observer.Started(startedAgain)
	default:
		d.Observer.Started(startedFirst)
	}
}

// measureSave makes a write that records a state, and takes note of it.
func (d *delivery) measureSave(write func() error) error {
	begun := time.Now()
	err := write()
	result := savedWell
	switch {
	case asConflict(err) != nil:
		result = savedFenced
	case err != nil:
		result = savedFailed
	}
	d.Observer.Saved(result, d.recordedSize(), time.Since(begun))
	return err
}
