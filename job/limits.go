package job

import (
	"fmt"
	"time"
)

// Limits bound the jobs of one kind. A limit that is 0 does not exist.
type Limits struct {
	// MaxRun is how long a job may run in all, over all its deliveries. It is
	// paid time: from each call of the handler to its end, waiting in the queue
	// left out. Of a run whose worker died without a word, what came after the
	// last write of the record is not known and not counted: a checkpoint
	// interval, or up to 10 minutes where the state did not change.
	MaxRun time.Duration

	// MaxSilence is how long a job may go without a report. It counts from the
	// call of the handler or the last [Job.Report], a report without a state
	// included.
	MaxSilence time.Duration

	// Concurrency is how many jobs of the kind one worker runs at once. What is
	// over it waits, on this worker or another; that counts as nothing.
	Concurrency int
}

// WithLimits returns a handler that does what h does, within the limits. A job
// that exceeds MaxRun or MaxSilence is stopped with [Overrun] or [Silent] as the
// reason, and has failed, whatever its handler returns then. After too long a
// silence it is tried again as after any failure; a job that ran too long ends in
// the poison queue, since another attempt could only run longer. Where h has limits
// already, or the job's message gives some, the stricter of each counts.
func WithLimits(h Handler, l Limits) Handler {
	return limited{Handler: h, limits: LimitsOf(h).Stricter(l)}
}

type limited struct {
	Handler
	limits Limits
}

func (h limited) Limits() Limits { return h.limits }

// LimitsOf returns the limits of a handler: those given to [WithLimits], or what
// its own method Limits returns. The worker reads them once for each job.
func LimitsOf(h Handler) Limits {
	if h, ok := h.(interface{ Limits() Limits }); ok {
		return h.Limits()
	}
	return Limits{}
}

// Stricter returns the smaller of each limit.
func (l Limits) Stricter(other Limits) Limits {
	return Limits{
		MaxRun:      stricter(l.MaxRun, other.MaxRun),
		MaxSilence:  stricter(l.MaxSilence, other.MaxSilence),
		Concurrency: stricter(l.Concurrency, other.Concurrency),
	}
}

// stricter returns the smaller of two limits, of which 0 is none.
func stricter[T int | time.Duration](a, b T) T {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	}
	return min(a, b)
}

// Validate says what must be changed, or returns nil.
func (l Limits) Validate() error {
	switch {
	case l.MaxRun < 0:
		return fmt.Errorf("max run %s is negative: give a duration, or 0 for no limit", l.MaxRun)
	case l.MaxSilence < 0:
		return fmt.Errorf("max silence %s is negative: give a duration, or 0 for no limit", l.MaxSilence)
	case l.Concurrency < 0:
		return fmt.Errorf("concurrency %d is negative: give a number of jobs, or 0 for no limit", l.Concurrency)
	}
	return nil
}
