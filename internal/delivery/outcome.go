package delivery

import (
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/job"
)

// Bounds of attempts.
const (
	// unknownKindFor is how long a message whose kind no worker has is put back
	// before it is poison: a worker that has it may come, as during an update.
	unknownKindFor = time.Hour

	// duplicatePatience is how long a duplicate waits for the delivery of the same id on
	// this worker to end, before it is put back.
	duplicatePatience = 2 * time.Second

	// abandonedFor is how long a handler that did not return in time keeps its id
	// from being started once more on this worker.
	abandonedFor = time.Minute

	// breaksPerStep breaks in a row lengthen the wait after a break as one failure
	// does that after a failure: a job that waits for something asks less often.
	breaksPerStep = 10

	// circlesFrom failures in all, or breaks in a row, a job is reported as one
	// that circles, and again each time that number doubles.
	circlesFrom = 10

	// repeatAfter is how long a job is left to others that would fail on the same
	// machine again, with nothing to tell whose fault it is.
	repeatAfter = 10 * time.Minute
)

// action is what is to be done with a delivery.
type action int

const (
	commit         action = iota + 1 // write the result, delete the message
	interrupted                      // save, give the job to another worker
	retryLater                       // save, count a failure, come back later
	poison                           // end the job, keep its message with the reason
	reject                           // poison without a record: not a job of ours
	alreadyOver                      // the job is over: do what is left, delete the message
	putBack                          // not workable now: leave it to others or to later
	storageRefused                   // storage refuses a blob of it for good: leave it to later
	requeue                          // enough of its kind run here: leave it to others or to later, uncounted
	skip                             // its kind rests here after failures: leave it to others at once, uncounted
	drop                             // another delivery has the job: touch nothing
)

var actionNames = [...]string{"", "commit", "interrupted", "retry", "poison", "reject", "finish", "put back", "requeue", "give way", "keep off", "drop"}

func (a action) String() string { return actionNames[a] }

// result is what the claim loop needs to know of an action.
func (a action) result() Result {
	switch a {
	case requeue, putBack, storageRefused:
		return NotRun
	case skip:
		return Skipped
	default:
		return Ran
	}
}

// outcome is what is to be done with a delivery, and why.
type outcome struct {
	action    action
	reason    string
	result    []byte            // of commit
	delay     time.Duration     // of retry, giveWay, an interruption that nobody asked for, and a putBack with a time of its own
	record    checkpoint.Record // of finish
	tookBreak bool              // of interrupted: the handler took a break

	refusal string // of requeue: the service's error code
}

// ended is how a handler's run ended, as far as the worker saw it.
type ended struct {
	result    []byte
	err       error
	abandoned bool                      // it did not return in time; err is errAbandoned
	proven    bool                      // it showed that it finished, see finished
	stop      *job.Stop                 // why it was stopped; nil if it was not
	fault     error                     // what the worker found wrong with its state
	conflict  *checkpoint.ConflictError // a write that was not ours to make
}

// provesDone reports whether a handler that returned no error showed that the job
// is done. Before a stop the nil error is enough. After it, the handler may have
// left its loop only because its context was cancelled: then a result, even an
// empty one that is not nil, or a report of Fraction 1 in this run is required.
// internal/process asks the same of a program. A fraction that was restored does
// not count: records keep four digits.
func provesDone(stopped bool, result []byte, latest *job.Progress) bool {
	return !stopped || result != nil || latest != nil && latest.Fraction >= 1
}

// exceeded reports whether the job was stopped because it exceeded a limit.
func (e ended) exceeded() bool {
	return e.stop != nil && (e.stop.Reason == job.Overrun || e.stop.Reason == job.Silent)
}

// failed reports whether the end is a failure, or may be one.
func (e ended) failed() bool { return e.exceeded() || e.err != nil && e.stop == nil }

// decide says what the end of a run means. n is what the counts would be if this
// was a failure or a break, and limits bound them.
//
// Once a stop was requested nothing but a proven result counts: an error, permanent
// or not, is then an interruption, and so is a nil error alone. A job that exceeded
// a limit has failed, whatever its handler returned. A conflict over the record
// comes before everything.
func decide(e ended, n checkpoint.Attempts, limits job.Limits) outcome {
	switch {
	case e.conflict != nil:
		return outcomeOf(e.conflict)
	case e.fault != nil:
		return outcome{action: poison, reason: e.fault.Error()}
	case e.exceeded() && e.stop.Reason == job.Overrun:
		return outcome{action: poison, reason: e.stop.Error()} // another attempt would only exceed it more
	case e.exceeded():
		return failed(e.stop, n, limits)
	case e.err == nil:
		return succeeded(e)
	case e.stop != nil:
		return outcome{action: interrupted, reason: e.stop.Error()}
	case job.IsUnavailable(e.err):
		return outcome{action: interrupted, reason: e.err.Error(), delay: limits.WithDefaults().Backoff}
	case job.IsInterrupted(e.err):
		return broke(e.err, n, limits)
	case job.IsPermanent(e.err):
		return outcome{action: poison, reason: e.err.Error()}
	default:
		return failed(e.err, n, limits)
	}
}

// succeeded is the outcome of a handler that returned no error.
func succeeded(e ended) outcome {
	switch {
	case len(e.result) > job.MaxResult:
		return outcome{action: poison, reason: fmt.Sprintf(
			"result has %d bytes; at most %d are allowed: put it in a blob and return its name", len(e.result), job.MaxResult)}
	case e.stop == nil || e.proven:
		return outcome{action: commit, result: e.result}
	default:
		return outcome{action: interrupted, reason: e.stop.Error() + "; the handler returned no error then, but neither a result nor a report of fraction 1"}
	}
}

// failed is the outcome of a failure that a further attempt may fix.
func failed(err error, n checkpoint.Attempts, limits job.Limits) outcome {
	limits = limits.WithDefaults()
	switch {
	case n.Failures >= limits.MaxFailures:
		return outcome{action: poison, reason: fmt.Sprintf("%d failures in a row without progress, the last: %v", n.Failures, err)}
	case n.FailuresTotal >= limits.MaxTotalFailures:
		return outcome{action: poison, reason: fmt.Sprintf("%d failures in all, in spite of progress between them, the last: %v", n.FailuresTotal, err)}
	}
	return outcome{action: retryLater, reason: err.Error(), delay: backoff(n.Failures, limits)}
}

// broke is the outcome of a break that the handler took.
func broke(err error, n checkpoint.Attempts, limits job.Limits) outcome {
	limits = limits.WithDefaults()
	if n.Breaks >= limits.MaxBreaks {
		return outcome{action: poison, reason: fmt.Sprintf("%d breaks in a row without progress of the fraction, the last: %v", n.Breaks, err)}
	}
	return outcome{action: interrupted, tookBreak: true, reason: err.Error(), delay: backoff(1+n.Breaks/breaksPerStep, limits)}
}

// backoff returns how long a job waits after that many failures in a row: as long
// as its kind says, twice as long each time, up to the most that its kind allows.
func backoff(failures int, limits job.Limits) time.Duration {
	wait := limits.Backoff
	for i := 1; i < failures && wait < limits.MaxBackoff; i++ {
		wait *= 2
	}
	return min(wait, limits.MaxBackoff)
}

// circles reports whether a count is one at which a job is reported as circling.
func circles(count int) bool {
	for at := circlesFrom; at <= count; at *= 2 {
		if at == count {
			return true
		}
	}
	return false
}

// outcomeOf says what a conflict over the record means for the message.
func outcomeOf(conflict *checkpoint.ConflictError) outcome {
	return ruled(conflict.Ruling, conflict.Record)
}

// ruled says what a ruling means that leaves the record alone.
func ruled(ruling checkpoint.Ruling, record checkpoint.Record) outcome {
	switch ruling {
	case checkpoint.Finish:
		return outcome{action: alreadyOver, record: record}
	case checkpoint.PutBack:
		return outcome{action: putBack, reason: "the job is in another message's hands: a duplicate"}
	case checkpoint.Unreadable:
		return outcome{action: putBack, reason: "the job's record is not one that this version can read"}
	case checkpoint.Mismatch:
		return outcome{action: reject, reason: fmt.Sprintf(
			"job id %s was used for other work: its record has kind %q and another kind or payload than this message", record.ID, record.Kind)}
	default:
		return outcome{action: drop, reason: "another delivery of this message has the job"}
	}
}

// verdict says what the end of a run means for its kind's circuit breaker.
// progressed is whether the run got anywhere, knownElsewhere whether the job
// failed on another machine last: then it is more likely the job's fault.
func (e ended) verdict(progressed, knownElsewhere bool) runVerdict {
	switch {
	case e.conflict != nil || e.fault != nil:
		return inconclusive
	case progressed || e.err == nil && !e.abandoned && e.stop == nil:
		return works
	case !e.failed() || knownElsewhere || job.IsPermanent(e.err):
		return inconclusive
	case e.stop != nil && e.stop.Reason == job.Overrun:
		return inconclusive
	default:
		return fails
	}
}

// asConflict returns the conflict in err, or nil.
func asConflict(err error) *checkpoint.ConflictError {
	var conflict *checkpoint.ConflictError
	errors.As(err, &conflict)
	return conflict
}
