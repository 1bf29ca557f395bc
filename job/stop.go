package job

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Reason says why a handler was stopped.
type Reason string

// The reasons for which a handler's context is cancelled.
const (
	Evicted  Reason = "evicted"        // the platform announced the end of this VM
	Shutdown Reason = "shutdown"       // the worker was told to end (SIGTERM)
	Lost     Reason = "lease lost"     // the job's message went to another worker
	Fenced   Reason = "fenced"         // the job's record belongs to another worker
	Faulty   Reason = "unusable state" // a report that cannot be recorded
	Overrun  Reason = "ran too long"   // more than MaxRun, see Limits
	Silent   Reason = "no report"      // for more than MaxSilence, see Limits
)

// Stop is the cause of a handler's cancelled context: why it was stopped, and
// when it must be gone.
type Stop struct {
	Reason Reason

	// Deadline is when the handler is abandoned if it has not returned. A more
	// urgent notice may bring it nearer: [StopOf] returns it as it is now.
	Deadline time.Time

	// NotBefore is when the platform may take the VM, by its own clock; zero
	// where that is not known, or not the reason. For people: what counts is
	// Deadline, which comes first.
	NotBefore time.Time

	// Err holds what led to the stop, for instance the notice of an eviction.
	Err error
}

// Error says why the handler was stopped.
func (s *Stop) Error() string {
	if s.Err == nil {
		return "stopped: " + string(s.Reason)
	}
	return fmt.Sprintf("stopped: %s: %v", s.Reason, s.Err)
}

// Unwrap returns what led to the stop.
func (s *Stop) Unwrap() error { return s.Err }

// StopOf returns why ctx was stopped, or nil while it is not.
func StopOf(ctx context.Context) *Stop {
	if stop, ok := errors.AsType[*Stop](context.Cause(ctx)); ok {
		return stop
	}
	return nil
}

// Permanent marks err as one that no further attempt can mend. The job ends in
// the poison queue with err as its reason. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

// Interrupted marks err as the end of a run that stopped by itself at a good
// place, to be gone on with later. It costs the job nothing, like a run that the
// worker has stopped, but MaxBreaks in [Limits] bounds how often that may happen
// without progress. Interrupted(nil) is nil.
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

// Unavailable marks err as the lack of something that the job needs and is not to
// blame for: this machine's disk is full, a service does not answer. It counts as
// nothing, like [Interrupted], and unlike that is no break of the job's own:
// MaxBreaks does not bound it. Unavailable(nil) is nil.
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

// IsPermanent reports whether err or an error it wraps was marked by [Permanent].
func IsPermanent(err error) bool {
	var p *permanent
	return errors.As(err, &p)
}

type permanent struct{ err error }

func (p *permanent) Error() string { return p.err.Error() }
func (p *permanent) Unwrap() error { return p.err }
