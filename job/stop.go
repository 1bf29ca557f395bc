package job

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Reason is why a handler was stopped.
type Reason string

// The reasons for which a handler's context is cancelled.
const (
	Evicted  Reason = "evicted"        // the platform announced the end of this VM
	Shutdown Reason = "shutdown"       // the worker got SIGTERM
	Lost     Reason = "lease lost"     // another worker may have the job's message
	Fenced   Reason = "fenced"         // another worker owns the job's record
	Faulty   Reason = "unusable state" // a reported state cannot be saved
	Overrun  Reason = "ran too long"   // longer than Limits.MaxRun
	Silent   Reason = "no report"      // for longer than Limits.MaxSilence

	// Cancelled means that an operator cancelled the job. Nothing of it is saved or
	// committed from then on, even if the handler returns a result: clean up and
	// return.
	Cancelled Reason = "cancelled"

	// Drained means that an operator drains this worker. The job is saved, and
	// continues on another one.
	Drained Reason = "drained"
)

// Stop is the cause of a handler's cancelled context: the reason and the deadline.
type Stop struct {
	Reason Reason

	// Deadline is when the handler is abandoned if it has not returned. A more urgent
	// notice may move it forward; [StopOf] returns the current one.
	Deadline time.Time

	// NotBefore is when the platform may stop the VM at the earliest, by its own
	// clock; zero if that is not known, or not the reason. It is for people: the
	// handler keeps to Deadline, which is earlier.
	NotBefore time.Time

	// Err is the cause of the stop, for instance the notice of an eviction.
	Err error
}

// Error returns the reason and its cause.
func (s *Stop) Error() string {
	if s.Err == nil {
		return "stopped: " + string(s.Reason)
	}
	return fmt.Sprintf("stopped: %s: %v", s.Reason, s.Err)
}

// Unwrap returns the cause of the stop.
func (s *Stop) Unwrap() error { return s.Err }

// StopOf returns the stop that cancelled ctx, or nil if there was none.
func StopOf(ctx context.Context) *Stop {
	if stop, ok := errors.AsType[*Stop](context.Cause(ctx)); ok {
		return stop
	}
	return nil
}

// Permanent marks err as an error that no retry can fix. The job is dead-lettered with
// err as its reason. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

// Interrupted marks err as a break: the handler stopped on its own, to continue later.
// Like a stop by the worker it is not a failure, but [Limits.MaxBreaks] limits the
// number of breaks without progress. Interrupted(nil) is nil.
func Interrupted(err error) error {
	if err == nil {
		return nil
	}
	return &interrupted{err, false}
}

// IsInterrupted reports whether err or an error it wraps was marked by
// [Interrupted] or [Unavailable].
func IsInterrupted(err error) bool {
	var i *interrupted
	return errors.As(err, &i)
}

// Unavailable marks err as the lack of something that the job needs: this machine's disk
// is full, or a service does not respond. It is neither a failure nor a break, so no
// limit applies to it. Unavailable(nil) is nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &interrupted{err, true}
}

// IsUnavailable reports whether err or an error it wraps was marked by
// [Unavailable].
func IsUnavailable(err error) bool {
	var i *interrupted
	return errors.As(err, &i) && i.unavailable
}

type interrupted struct {
	err         error
	unavailable bool
}

func (i *interrupted) Error() string { return i.err.Error() }
func (i *interrupted) Unwrap() error { return i.err }

// OwnFault marks err as the fault of what the job itself brings, such as the command that its
// message names. It is a failure like any other, but says nothing about the machine: the
// circuit breaker of the kind does not count it. If it ends the job, the outputs that were
// sent before stay the job's. OwnFault(nil) is nil.
func OwnFault(err error) error {
	if err == nil {
		return nil
	}
	return &ownFault{err}
}

// IsOwnFault reports whether err or an error it wraps was marked by [OwnFault].
func IsOwnFault(err error) bool {
	var o *ownFault
	return errors.As(err, &o)
}

type ownFault struct{ err error }

func (o *ownFault) Error() string { return o.err.Error() }
func (o *ownFault) Unwrap() error { return o.err }

// IsPermanent reports whether err or an error it wraps was marked by [Permanent].
func IsPermanent(err error) bool {
	var p *permanent
	return errors.As(err, &p)
}

type permanent struct{ err error }

func (p *permanent) Error() string { return p.err.Error() }
func (p *permanent) Unwrap() error { return p.err }
