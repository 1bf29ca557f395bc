package delivery

import (
	"maps"
	"slices"
	"time"
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

	// Waited reports for how long the job had waited when its handler was called: since
	// it was put, since it was released, since it failed, or since the last write of
	// the worker that ended uncleanly (a word of [Waits]).
	Waited(after string, wait time.Duration)

	// Returned reports that a handler has returned, or was abandoned.
	Returned()

	// Spent reports for how long a handler ran, by the outcome of that time: a word of
	// [Efforts]. One run may be reported in two parts.
	Spent(kind, effort string, took time.Duration)

	// Committed reports a job that is done: the time since it was put, that in handlers
	// over all deliveries, and how often it was interrupted and lost its worker.
	Committed(kind string, sincePut, ran time.Duration, interruptions, exits int)

	// Failed reports a failure, or a job that was dead-lettered, with a word of
	// [FailureClasses]. Kinds that the worker does not have are "other".
	Failed(kind, class string)

	// Saved reports an attempt to record a state of that many bytes: "saved",
	// "fenced" because another worker owns the job by now, or "failed".
	Saved(result string, bytes int64, took time.Duration)

	// OutputSent reports that a job stored an output file of that many bytes.
	OutputSent(bytes int64)

	// Broke reports that the circuit breaker of a kind opened, or opened again, and
	// Recovered that it is closed.
	Broke(kind string)
	Recovered(kind string)

	// Refused reports a message that was put back because storage permanently
	// refused a blob of its job, with the service's error code.
	Refused(code string)

	// LeftOut reports a job that was released without its last state.
	LeftOut()

	// Moved reports a job that was put on the on-demand queue, with a word of [Moves].
	Moved(reason string)

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

// Why a job was moved to the on-demand queue, as [Observer.Moved] reports it.
const movedForInterruptions, movedForDeadline = "interruptions", "deadline"

// The event that began a job's wait, as [Observer.Waited] reports it.
const (
	afterPut, afterRelease, afterFailure, afterExit = "put", "release", "failure", "exit"
)

// The outcome of the time of a handler, as [Observer.Spent] reports it.
const (
	effortCommitted  = "committed"
	effortHandedOver = "handed_over" // recorded for the next worker
	effortFailed     = "failed"
	effortRedone     = "redone" // not recorded, or in vain: another owns the job, or it was cancelled
)

// Why a job failed, as [Observer.Failed] reports it.
const (
	failedByError     = "error"
	failedPermanently = "permanent"
	failedByPanic     = "panic"
	failedSilent      = "silent"
	failedOverrun     = "overrun"
	failedTooLarge    = "too_large" // its state or its result
	failedByExits     = "exits"     // its workers ended uncleanly too often
	failedMessage     = "message"   // unreadable, or of other work or an unknown kind
)

// otherKind stands for all kinds that a worker does not have: a message may name any.
const otherKind = "other"

// outcomeWords are the actions as [Observer.Ended] reports them.
var outcomeWords = map[action]string{
	commit: "committed", interrupted: "released", retryLater: "failed", poison: "poisoned", reject: "poisoned",
	alreadyOver: "finished", wait: "put_back", drop: "dropped",
}

// Outcomes returns the words that [Observer.Ended] gets.
func Outcomes() []string {
	return append(slices.Compact(slices.Sorted(maps.Values(outcomeWords))), outcomeMoved, outcomeLeft)
}

// Starts returns the words that [Observer.Started] gets.
func Starts() []string { return []string{startedFirst, startedResumed, startedAgain} }

// Saves returns the results that [Observer.Saved] gets.
func Saves() []string { return []string{savedWell, savedFenced, savedFailed} }

// Moves returns what [Observer.Moved] gets.
func Moves() []string { return []string{movedForInterruptions, movedForDeadline} }

// Waits returns what [Observer.Waited] gets.
func Waits() []string { return []string{afterPut, afterRelease, afterFailure, afterExit} }

// Efforts returns what [Observer.Spent] gets.
func Efforts() []string {
	return []string{effortCommitted, effortHandedOver, effortFailed, effortRedone}
}

// FailureClasses returns what [Observer.Failed] gets.
func FailureClasses() []string {
	return []string{failedByError, failedPermanently, failedByPanic, failedSilent, failedOverrun, failedTooLarge, failedByExits, failedMessage}
}

// FailedHere reports whether a class of failures is about a handler's run, and not about
// the message or earlier workers.
func FailedHere(class string) bool { return class != failedByExits && class != failedMessage }

// Circles returns the causes that [Observer.Circles] gets.
func Circles() []string { return []string{circlesByFailures, circlesByBreaks} }
