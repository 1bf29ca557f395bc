// Package observe has the events that a worker reports to its observer, for metrics, and the
// words that they use.
package observe

import (
	"time"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/job"
)

// Observer gets each event of a worker and its jobs. It is called from many goroutines at once,
// also while locks are held: it must be quick and must not call the worker.
type Observer func(Event)

// Nothing is an Observer that counts nothing.
func Nothing(Event) {}

// Event is one of the types below. Its words are from short lists, never the name of a job or a
// blob. Kinds that the worker does not have are [OtherKind].
type Event any

// OtherKind stands for all kinds that a worker does not have: a message may name any.
const OtherKind = "other"

// The events of a delivery and its job.
type (
	// Delivered: a delivery began. Ended: it ended, with a word of [Outcomes].
	Delivered struct{}
	Ended     struct{ Outcome string }

	// Started: a handler is called, with a word of [Starts]. Returned: it has returned, or was
	// abandoned.
	Started  struct{ How string }
	Returned struct{}

	// Waited: for how long a job had waited when its handler was called, since what a word of
	// [Waits] says.
	Waited struct {
		After string
		For   time.Duration
	}

	// Spent: for how long a handler ran, by the outcome of that time, a word of [Efforts]. One
	// run may be reported in two parts.
	Spent struct {
		Kind, Effort string
		Took         time.Duration
	}

	// Committed: a job is done. SincePut is the time since it was put, and Ran its time in
	// handlers over all deliveries.
	Committed struct {
		Kind                 string
		SincePut, Ran        time.Duration
		Interruptions, Exits int
	}

	// Failed: a job failed or was dead-lettered, with a word of [FailureClasses].
	Failed struct{ Kind, Class string }

	// Saved: an attempt to record a state, with a word of [Saves].
	Saved struct {
		Result string
		Bytes  int64
		Took   time.Duration
	}

	// OutputSent: a job stored an output file.
	OutputSent struct{ Bytes int64 }

	// InputsUsed: input files, with a word of [Inputs].
	InputsUsed struct {
		Result       string
		Files, Bytes int64
	}

	// Broke: the circuit breaker of a kind opened, or opened again. Recovered: it is closed, as
	// at the worker's start.
	Broke     struct{ Kind string }
	Recovered struct{ Kind string }

	// Refused: a message was put back because storage permanently refused a blob of its job,
	// with the service's error code.
	Refused struct{ Code string }

	// LeftOut: a job was released without its last state.
	LeftOut struct{}

	// Moved: a job was put on the on-demand queue, with a word of [Moves].
	Moved struct{ Reason string }

	// Circles: a job does not end: its 10th, 20th, 40th ... of what a word of [Circling] says.
	Circles struct{ Cause string }
)

// The events of the worker and its VM.
type (
	// Entered: the worker is in a state, or an event changed only what follows. Ending says that
	// the process was asked to end.
	Entered struct {
		State  lifecycle.State
		Ending bool
	}

	// Drained: the end of a drain, and how long after its notice it came.
	Drained struct {
		Reason string
		Took   time.Duration
	}

	// QueueRead: about how many messages a queue has, and for how long the one at its front has
	// waited; 0 if none is visible.
	QueueRead struct {
		Queue    string
		Messages int
		Oldest   time.Duration
	}

	// Watching gives, once and at first, the function that returns figures of the running jobs at
	// any time.
	Watching struct{ Look func() Sight }

	// Blind: since when no poll of the metadata service was answered; zero if polls are answered
	// again.
	Blind struct{ Since time.Time }

	// Polled: a poll of the metadata service ended.
	Polled struct {
		At     time.Time
		Result preempt.PollResult
	}

	// Announced: an event names this VM, or another action follows from it.
	Announced struct{ Type, Action string }

	// Unrecognised: an event was announced while the name of this VM was not known, and may be
	// about this VM.
	Unrecognised struct{}

	// Acknowledged: the result of acknowledging an event, a word of [Acknowledgements].
	Acknowledged struct{ Result string }
)

// Sight has figures of the running jobs: the age of the oldest last report and of the oldest
// checkpoint, how many are silent for unusually long, and how many jobs wait because no live
// worker has their kind, or the machine for their state.
type Sight struct {
	Report, Checkpoint time.Duration
	Silent, Lacking    int
}

// The words of events.
const (
	StartedFirst, StartedResumed, StartedAgain = "first", "resumed", "again" // from a recorded state; because there was none
	SavedWell, SavedFenced, SavedFailed        = "saved", "fenced", "failed" // fenced: another worker owns the job
	CirclesByFailures, CirclesByBreaks         = "failures", "breaks"        // in all; in a row
	MovedForInterruptions, MovedForDeadline    = "interruptions", "deadline"
	Accepted, RefusedByPlatform                = "accepted", "refused"

	InputFetched, InputCached, InputEvicted, InputChanged = "fetched", "cached", "evicted", "changed" // changed in the cache

	// An exit is the last write of a worker that ended uncleanly.
	AfterPut, AfterRelease, AfterFailure, AfterExit = "put", "release", "failure", "exit"
)

// The outcomes of a delivery.
const (
	EndedCommitted = "committed"
	EndedReleased  = "released"
	EndedFailed    = "failed"
	EndedPoisoned  = "poisoned"
	EndedFinished  = "finished" // the job was over before
	EndedPutBack   = "put_back"
	EndedDropped   = "dropped"
	EndedMoved     = "moved" // released to the on-demand queue
	EndedLeft      = "left"  // its visibility timeout will expire
)

// The outcome of a handler's time.
const (
	EffortCommitted  = "committed"
	EffortHandedOver = "handed_over" // recorded for the next worker
	EffortFailed     = "failed"
	EffortRedone     = "redone" // not recorded, or in vain: another owns the job, or it was cancelled
)

// Why a job failed.
const (
	FailedByError     = "error"
	FailedPermanently = "permanent"
	FailedByPanic     = "panic"
	FailedSilent      = "silent"
	FailedOverrun     = "overrun"
	FailedTooLarge    = "too_large" // its state or its result
	FailedByExits     = "exits"     // its workers ended uncleanly too often
	FailedMessage     = "message"   // unreadable, or of other work or an unknown kind
)

// All words of an event's field.
var (
	Outcomes = []string{
		EndedCommitted, EndedReleased, EndedFailed, EndedPoisoned, EndedFinished, EndedPutBack, EndedDropped, EndedMoved, EndedLeft,
	}
	Starts         = []string{StartedFirst, StartedResumed, StartedAgain}
	Waits          = []string{AfterPut, AfterRelease, AfterFailure, AfterExit}
	Efforts        = []string{EffortCommitted, EffortHandedOver, EffortFailed, EffortRedone}
	FailureClasses = []string{
		FailedByError, FailedPermanently, FailedByPanic, FailedSilent, FailedOverrun, FailedTooLarge, FailedByExits, FailedMessage,
	}
	Saves            = []string{SavedWell, SavedFenced, SavedFailed}
	Moves            = []string{MovedForInterruptions, MovedForDeadline}
	Circling         = []string{CirclesByFailures, CirclesByBreaks}
	Inputs           = []string{InputFetched, InputCached, InputEvicted, InputChanged}
	Acknowledgements = []string{Accepted, RefusedByPlatform}
	DrainReasons     = []string{string(job.Evicted), string(job.Shutdown), string(job.Drained)}
)

// Here reports whether a failure is about a handler's run, and not about the message or earlier
// workers.
func (f Failed) Here() bool { return f.Class != FailedByExits && f.Class != FailedMessage }
