package delivery

import (
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/breaker"
	"github.com/spotworker/spotworker/internal/delivery/deadline"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/job"
)

// Bounds of attempts.
const (
	// duplicatePatience is how long a duplicate waits for the delivery of the same id
	// on this worker to end, before it is put back.
	duplicatePatience = 2 * time.Second

	// abandonedFor is how long a handler that did not return in time keeps its job
	// from being started again on this worker.
	abandonedFor = time.Minute

	// breaksPerStep breaks in a row lengthen the back-off as one failure does: a job
	// that waits for something checks less often.
	breaksPerStep = 10

	// After circlesFrom failures in all, or breaks in a row, a job is reported as a
	// job that may never end, and again each time that number doubles.
	circlesFrom = 10
)

// action says how a delivery settles its message.
type action int

const (
	commit      action = iota + 1 // write the result, delete the message
	interrupted                   // save, release the job to another worker
	retryLater                    // save, count a failure, make the message visible later
	poison                        // end the job, move its message to the poison queue with the reason
	reject                        // move the message to the poison queue without a record
	alreadyOver                   // the job is over: delete the message
	wait                          // it is not run now: make the message visible later
	drop                          // another delivery has the message: touch nothing
)

var actionNames = [...]string{"", "commit", "interrupted", "retry", "poison", "reject", "finish", "put back", "drop"}

func (a action) String() string { return actionNames[a] }

// settleNames are the names of spans, by action.
var settleNames = map[action]string{
	commit: "commit", interrupted: "release", retryLater: "fail", poison: "dead-letter", reject: "dead-letter", alreadyOver: "finish",
	wait: "requeue", drop: "leave",
}

// outcome is the outcome of a delivery: the action for its message, and the reason.
type outcome struct {
	action    action
	reason    string
	result    []byte             // of commit
	delay     time.Duration      // of retryLater, breaks, and wait; 0 for as long as a message waits
	record    *checkpoint.Record // of alreadyOver
	tookBreak bool               // of interrupted: the handler took a break
	failed    bool               // of poison: because of one more failure, which counts
	waits     Result             // of wait: NotRun, Skipped or Unfit
	failure   string             // why the job failed, for observers; empty if it did not, or never ran
	refusal   string             // of wait: the service's error code, if storage permanently refuses a blob of the job

	own   *owned             // the job whose record it is written to; nil if this delivery owns none
	run   *ended             // of a job whose handler was called; nil for another
	moves *deadline.Verdict  // of interrupted: why the job moves before its handler is called; nil for another
	blame checkpoint.Failure // of a failure: on which machine, and whether it repeats the last one
}

// seen returns the outcome as the claim loop sees it.
func (o *outcome) seen() Result {
	if o.action == wait {
		return o.waits
	}
	return Ran
}

// runEnd is how a handler's run ended, as far as the worker saw it.
type runEnd struct {
	result   []byte
	err      error
	proven   bool                      // it showed that it finished, see provesDone
	stop     *job.Stop                 // why it was stopped; nil if it was not
	fault    error                     // the fault in its state
	conflict *checkpoint.ConflictError // a write of the record was refused
}

// provesDone reports whether a handler that returned no error showed that the job
// is done. Before a stop the nil error is enough. After it, the handler may have
// left its loop only because its context was cancelled: then a result that is not
// nil, even if empty, or a report of Fraction 1 in this run is required.
// internal/program asks the same of a program. A fraction that was restored does
// not count: records keep four digits.
func provesDone(stopped bool, result []byte, latest *job.Progress) bool {
	return !stopped || result != nil || latest != nil && latest.Fraction >= 1
}

// exceeded reports whether the job was stopped because it exceeded a limit.
func (e *runEnd) exceeded() bool {
	return e.stop != nil && (e.stop.Reason == job.Overrun || e.stop.Reason == job.Silent)
}

// failed reports whether the end is, or may be, a failure.
func (e *runEnd) failed() bool { return e.exceeded() || e.err != nil && e.stop == nil }

// decide decides what to do after the end of a run. n has the counts that the record
// would have if this was a failure or a break, and limits bound them.
//
// Once a stop was requested nothing but a proven result counts: an error, permanent
// or not, is then an interruption, and so is a nil error alone. A job that exceeded
// a limit has failed, regardless of its handler's return values. A conflict over
// the record comes before everything.
func decide(e *runEnd, n checkpoint.Attempts, limits job.Limits) *outcome {
	switch {
	case e.conflict != nil:
		return outcomeOf(e.conflict)
	case e.fault != nil:
		return &outcome{action: poison, reason: e.fault.Error()}
	case e.exceeded() && e.stop.Reason == job.Overrun:
		return &outcome{action: poison, reason: e.stop.Error()} // another attempt would only exceed it more
	case e.exceeded():
		return failed(e.stop, n, limits)
	case e.err == nil:
		return succeeded(e)
	case e.stop != nil:
		return &outcome{action: interrupted, reason: e.stop.Error()}
	case job.IsUnavailable(e.err):
		return &outcome{action: interrupted, reason: e.err.Error(), delay: limits.WithDefaults().Backoff}
	case job.IsInterrupted(e.err):
		return broke(e.err, n, limits)
	case job.IsPermanent(e.err):
		return &outcome{action: poison, reason: e.err.Error()}
	default:
		return failed(e.err, n, limits)
	}
}

// outcomeOfRun is decide, with the class of the failure. An interruption is none, also with an
// error.
func outcomeOfRun(e *runEnd, n checkpoint.Attempts, limits job.Limits) *outcome {
	out := decide(e, n, limits)
	if out.action != interrupted {
		out.failure = e.failureClass()
	}
	return out
}

// succeeded is the outcome of a handler that returned no error.
func succeeded(e *runEnd) *outcome {
	switch {
	case len(e.result) > job.MaxResult:
		return &outcome{action: poison, reason: fmt.Sprintf(
			"result has %d bytes; at most %d are allowed: put it in a blob and return its name", len(e.result), job.MaxResult)}
	case e.stop == nil || e.proven:
		return &outcome{action: commit, result: e.result}
	default:
		return &outcome{action: interrupted, reason: e.stop.Error() + "; the handler returned no error then, but neither a result nor a " +
			"report of fraction 1"}
	}
}

// failed is the outcome of a failure that a further attempt may fix.
func failed(err error, n checkpoint.Attempts, limits job.Limits) *outcome {
	limits = limits.WithDefaults()
	switch {
	case n.Failures == 1 && limits.MaxFailures == 1:
		return &outcome{action: poison, failed: true, reason: fmt.Sprintf("failed, and has no second attempt: %v", err)}
	case n.Failures >= limits.MaxFailures:
		return &outcome{action: poison, failed: true, reason: fmt.Sprintf("%d failures in a row without progress, the last: %v", n.Failures, err)}
	case n.FailuresTotal >= job.MaxTotalFailures:
		return &outcome{action: poison, failed: true, reason: fmt.Sprintf("%d failures in all, in spite of progress between them, the last: %v",
			n.FailuresTotal, err)}
	}
	return &outcome{action: retryLater, reason: err.Error(), delay: backoff(n.Failures, limits)}
}

// broke is the outcome of a break that the handler took.
func broke(err error, n checkpoint.Attempts, limits job.Limits) *outcome {
	limits = limits.WithDefaults()
	if n.Breaks >= job.MaxBreaks {
		return &outcome{action: poison, reason: fmt.Sprintf("%d breaks in a row without progress of the fraction, the last: %v", n.Breaks, err)}
	}
	return &outcome{action: interrupted, tookBreak: true, reason: err.Error(), delay: backoff(1+n.Breaks/breaksPerStep, limits)}
}

// backoff returns how long a job waits after that many failures in a row: exponentially
// longer, from Backoff of its limits to [job.MaxBackoff].
func backoff(failures int, limits job.Limits) time.Duration {
	wait, longest := limits.Backoff, max(limits.Backoff, job.MaxBackoff)
	for i := 1; i < failures && wait < longest; i++ {
		wait *= 2
	}
	return min(wait, longest)
}

// circles reports whether a count is one at which a job is reported.
func circles(count int) bool {
	for at := circlesFrom; at <= count; at *= 2 {
		if at == count {
			return true
		}
	}
	return false
}

// outcomeOf returns the outcome of a delivery that met a conflict over the record.
func outcomeOf(conflict *checkpoint.ConflictError) *outcome {
	return ruled(conflict.Ruling, conflict.Record)
}

// ruled returns the outcome for a ruling that leaves the record alone.
func ruled(ruling checkpoint.Ruling, record checkpoint.Record) *outcome {
	switch ruling {
	case checkpoint.Finish:
		return &outcome{action: alreadyOver, record: &record}
	case checkpoint.PutBack:
		return &outcome{action: wait, waits: NotRun, reason: "another message has the job: a duplicate"}
	case checkpoint.Unreadable:
		return &outcome{action: wait, waits: NotRun,
			reason: "the job's record is of a newer version of the worker, or damaged: only a newer worker can run the job"}
	case checkpoint.Mismatch:
		return &outcome{action: reject, reason: fmt.Sprintf(
			"job id %s was used for other work: its record has kind %q and another kind or payload than this message", record.ID, record.Kind)}
	default:
		return &outcome{action: drop, reason: "another delivery of this message has the job"}
	}
}

// failureClass returns why the job failed, if the end of its run is a failure.
func (e *runEnd) failureClass() string {
	switch {
	case e.conflict != nil:
		return ""
	case e.fault != nil, e.err == nil && len(e.result) > job.MaxResult:
		return observe.FailedTooLarge
	case e.exceeded() && e.stop.Reason == job.Overrun:
		return observe.FailedOverrun
	case e.exceeded():
		return observe.FailedSilent
	case errors.Is(e.err, errPanicked):
		return observe.FailedByPanic
	case job.IsPermanent(e.err):
		return observe.FailedPermanently
	case e.err != nil:
		return observe.FailedByError
	}
	return ""
}

// breakerVerdict returns the verdict of the end of a run for its kind's circuit breaker.
// progressed is whether the run made progress, knownElsewhere whether the job failed on another
// machine last: then the job is more likely to blame.
func (e *runEnd) breakerVerdict(progressed, knownElsewhere bool) breaker.Verdict {
	switch {
	case e.conflict != nil || e.fault != nil:
		return breaker.Inconclusive
	case progressed || e.err == nil && e.stop == nil:
		return breaker.Works
	case !e.failed() || knownElsewhere || job.IsPermanent(e.err) || job.IsOwnFault(e.err):
		return breaker.Inconclusive
	case e.stop != nil && e.stop.Reason == job.Overrun:
		return breaker.Inconclusive
	default:
		return breaker.Fails
	}
}

// asConflict returns the conflict in err, or nil.
func asConflict(err error) *checkpoint.ConflictError {
	var conflict *checkpoint.ConflictError
	errors.As(err, &conflict)
	return conflict
}

const (
	// refusedTries is how often a call is tried that storage permanently refuses
	// ([checkpoint.PermanentRefusal]), where giving up loses nothing.
	refusedTries = 3

	// resultPatience is how long a commit is tried then, since giving up loses the
	// work since the last save. It is longer than a blob lease of a minute, the
	// longest that ends without being released.
	resultPatience = 75 * time.Second
)

// refusedOutcome is the outcome of a delivery when storage permanently refuses its
// call: it frees the slot, and its message becomes visible again later and later.
func refusedOutcome(err error) *outcome {
	code := checkpoint.PermanentRefusal(err)
	return &outcome{action: wait, waits: NotRun, refusal: code, reason: fmt.Sprintf("storage refused (%s): %v", code, err)}
}

// hasTriedEnough reports whether to give up an outcome that storage permanently refused,
// after so many tries in that time: at once in a drain, which has no time to lose, and
// later where giving up loses a result.
func hasTriedEnough(draining, losesResult bool, tries int, tried time.Duration) bool {
	switch {
	case draining:
		return true
	case losesResult:
		return tried >= resultPatience
	default:
		return tries >= refusedTries
	}
}

// outcomeWords are the actions as [observe.Ended] reports them.
var outcomeWords = map[action]string{
	commit: observe.EndedCommitted, interrupted: observe.EndedReleased, retryLater: observe.EndedFailed, poison: observe.EndedPoisoned,
	reject: observe.EndedPoisoned, alreadyOver: observe.EndedFinished, wait: observe.EndedPutBack, drop: observe.EndedDropped,
}
