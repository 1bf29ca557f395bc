package delivery

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// Observer counts deliveries, for metrics. The words that it gets are from short
// lists, never the name of a job or a blob. Its methods are called from many
// goroutines at once: they must be quick.
type Observer interface {
	// Delivered reports that a delivery began, and Ended its outcome: a word of
	// [Outcomes].
	Delivered()
	Ended(outcome string)

	// Started reports that a handler is called: for the "first" time, "resumed" from
	// a recorded state, or "again" because nothing was recorded.
	Started(how string)

	// Saved reports an attempt to record a state of that many bytes: "saved",
	// "fenced" because another worker owns the job by now, or "failed".
	Saved(result string, bytes int64, took time.Duration)

	// Broke reports that the circuit breaker of a kind opened, or opened again, and
	// Recovered that it is closed.
	Broke(kind string)
	Recovered(kind string)

	// Refused reports a message that was put back because storage permanently
	// refused a blob of its job, with the service's error code.
	Refused(code string)

	// LeftOut reports a job that was released without its last state.
	LeftOut()

	// Circles reports a job that does not end: its 10th, 20th, 40th ... of
	// "failures" in all, or of "breaks" in a row.
	Circles(cause string)
}

// The words that an [Observer] gets.
const (
	startedFirst, startedResumed, startedAgain = "first", "resumed", "again"
	savedWell, savedFenced, savedFailed        = "saved", "fenced", "failed"
	circlesByFailures, circlesByBreaks         = "failures", "breaks"
	outcomeMoved                               = "moved" // released to the on-demand queue
	outcomeLeft                                = "left"  // its visibility timeout will expire
)

// outcomeWords are the actions as [Observer.Ended] reports them.
var outcomeWords = map[action]string{
	commit: "committed", interrupted: "released", retryLater: "failed", poison: "poisoned", reject: "poisoned",
	alreadyOver: "finished", putBack: "put_back", storageRefused: "put_back", requeue: "gave_way", skip: "gave_way", drop: "dropped",
}

// Outcomes returns the words that [Observer.Ended] gets.
func Outcomes() []string {
	return append(slices.Compact(slices.Sorted(maps.Values(outcomeWords))), outcomeMoved, outcomeLeft)
}

// Starts returns the words that [Observer.Started] gets.
func Starts() []string { return []string{startedFirst, startedResumed, startedAgain} }

// Saves returns the results that [Observer.Saved] gets.
func Saves() []string { return []string{savedWell, savedFenced, savedFailed} }

// Circles returns the causes that [Observer.Circles] gets.
func Circles() []string { return []string{circlesByFailures, circlesByBreaks} }

// reportOutcome counts the outcome of the delivery.
func (d *Delivery) reportOutcome(out outcome) {
	switch out.action {
	case commit:
		d.runner.counters.committed.Add(1)
	case interrupted:
		d.runner.counters.released.Add(1)
	default: // the log of a drain needs no other
	}
	if out.action == storageRefused {
		d.runner.observer.Refused(out.refusal)
	}
	if d.leftOut {
		d.runner.counters.leftOut.Add(1)
		d.runner.observer.LeftOut()
	}
	word := outcomeWords[out.action]
	if d.moved && out.action == interrupted {
		word = outcomeMoved
	}
	d.runner.observer.Ended(word)
}

// reportFailures reports a job that failed so often in all that it may never end.
func (d *Delivery) reportFailures() {
	if n := d.claim.Record().FailuresTotal; circles(n) {
		d.runner.observer.Circles(circlesByFailures)
		d.log.Warn("job circles: it keeps failing although it makes progress",
			"failures_total", n, "poison_at", d.jobLimits.WithDefaults().MaxTotalFailures, "fraction", d.claim.Record().Fraction)
	}
}

// reportBreaks reports a job that took so many breaks in a row that it may never
// end.
func (d *Delivery) reportBreaks(out outcome) {
	if n := d.claim.Record().Breaks; out.tookBreak && circles(n) {
		d.runner.observer.Circles(circlesByBreaks)
		d.log.Warn("job circles: it keeps taking breaks and its fraction does not grow",
			"breaks", n, "poison_at", d.jobLimits.WithDefaults().MaxBreaks, "fraction", d.claim.Record().Fraction)
	}
}

// reportStart reports that the handler is about to be called.
func (d *Delivery) reportStart(record checkpoint.Record, resumed bool) {
	switch {
	case resumed:
		d.runner.observer.Started(startedResumed)
	case record.Generation > 1:
		d.runner.observer.Started(startedAgain)
	default:
		d.runner.observer.Started(startedFirst)
	}
}

// measureSave makes a write that records a state, and reports its result.
func (d *Delivery) measureSave(write func() error) error {
	begun := time.Now()
	err := write()
	result := savedWell
	switch {
	case asConflict(err) != nil:
		result = savedFenced
	case err != nil:
		result = savedFailed
	}
	d.runner.observer.Saved(result, d.recordedSize(), time.Since(begun))
	return err
}

const (
	// logLimitPeriod is for how long one line stands for all of its kind of job.
	logLimitPeriod = time.Minute

	// logLimitKinds bounds the kinds that have a line of their own: a message may name
	// any kind. Further ones share a line.
	logLimitKinds = 64
)

// logLimit lets one line for each kind of job and minute through. 20,000 messages
// of a kind that no worker has would otherwise log a line each whenever they come
// round.
type logLimit struct {
	mu    sync.Mutex
	lines map[string]*limitedLine
}

// limitedLine is a line that was let through, and how many were not since.
type limitedLine struct {
	at   time.Time
	more int
}

// allow reports whether a line about a kind is due at now, and how many were left
// out since the one before.
func (l *logLimit) allow(kind string, now time.Time) (due bool, leftOut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = map[string]*limitedLine{}
	}
	line := l.lines[kind]
	if line == nil && len(l.lines) >= logLimitKinds {
		l.forget(now)
	}
	if line == nil && len(l.lines) >= logLimitKinds {
		kind = ""
		line = l.lines[kind]
	}
	switch {
	case line == nil:
		l.lines[kind] = &limitedLine{at: now}
		return true, 0
	case now.Sub(line.at) < logLimitPeriod:
		line.more++
		return false, 0
	}
	leftOut = line.more
	*line = limitedLine{at: now}
	return true, leftOut
}

// forget drops the lines whose time is over and that nothing was left out of.
func (l *logLimit) forget(now time.Time) {
	for kind, line := range l.lines {
		if now.Sub(line.at) >= logLimitPeriod && line.more == 0 {
			delete(l.lines, kind)
		}
	}
}
