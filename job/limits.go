package job

import (
	"cmp"
	"fmt"
	"time"
)

// Defaults of the limits on attempts.
const (
	DefaultMaxFailures      = 5
	DefaultMaxTotalFailures = 100
	DefaultMaxBreaks        = 1000
	DefaultBackoff          = 10 * time.Second
	DefaultMaxBackoff       = 10 * time.Minute
)

// MostBackoff is the longest wait between attempts.
const MostBackoff = 24 * time.Hour

// Limits bound the jobs of one kind. A limit on time or concurrency that is 0 does
// not exist; one on attempts has its default then.
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

	// MaxFailures is how many failures in a row, without progress between them, end
	// a job in the poison queue. Default [DefaultMaxFailures].
	MaxFailures int

	// MaxTotalFailures is how many failures in all end a job, progress or not. It
	// bounds a handler that reports another state each time before it fails.
	// Default [DefaultMaxTotalFailures].
	MaxTotalFailures int

	// MaxBreaks is how many breaks in a row ([Interrupted]) end a job, counted
	// since the fraction that it has at a break last rose above all earlier ones.
	// Default [DefaultMaxBreaks].
	MaxBreaks int

	// Backoff is how long a job waits after its first failure; the wait doubles
	// with each further one in a row, up to MaxBackoff. After a break it is the
	// same with ten breaks in place of each failure. Defaults [DefaultBackoff] and
	// [DefaultMaxBackoff].
	Backoff, MaxBackoff time.Duration
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

// Stricter returns the smaller of each limit, and the longer of each wait.
func (l Limits) Stricter(other Limits) Limits {
	return Limits{
		MaxRun:      stricter(l.MaxRun, other.MaxRun),
		MaxSilence:  stricter(l.MaxSilence, other.MaxSilence),
		Concurrency: stricter(l.Concurrency, other.Concurrency),

		MaxFailures:      stricter(l.MaxFailures, other.MaxFailures),
		MaxTotalFailures: stricter(l.MaxTotalFailures, other.MaxTotalFailures),
		MaxBreaks:        stricter(l.MaxBreaks, other.MaxBreaks),
		Backoff:          max(l.Backoff, other.Backoff),
		MaxBackoff:       max(l.MaxBackoff, other.MaxBackoff),
	}
}

// WithDefaults returns the limits with the defaults of those on attempts that are
// not given.
func (l Limits) WithDefaults() Limits {
	l.MaxFailures = cmp.Or(l.MaxFailures, DefaultMaxFailures)
	l.MaxTotalFailures = cmp.Or(l.MaxTotalFailures, DefaultMaxTotalFailures)
	l.MaxBreaks = cmp.Or(l.MaxBreaks, DefaultMaxBreaks)
	l.Backoff = cmp.Or(l.Backoff, min(DefaultBackoff, cmp.Or(l.MaxBackoff, DefaultBackoff)))
	l.MaxBackoff = cmp.Or(l.MaxBackoff, max(DefaultMaxBackoff, l.Backoff))
	return l
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
	case l.MaxFailures < 0 || l.MaxTotalFailures < 0 || l.MaxBreaks < 0:
		return fmt.Errorf("max failures %d, max total failures %d or max breaks %d is negative: give a number, or 0 for the default",
			l.MaxFailures, l.MaxTotalFailures, l.MaxBreaks)
	case l.Backoff < 0 || l.MaxBackoff < 0:
		return fmt.Errorf("backoff %s or max backoff %s is negative: give a duration, or 0 for the default", l.Backoff, l.MaxBackoff)
	case l.MaxBackoff > 0 && l.Backoff > l.MaxBackoff:
		return fmt.Errorf("backoff %s is longer than max backoff %s", l.Backoff, l.MaxBackoff)
	case l.MaxBackoff > MostBackoff || l.Backoff > MostBackoff:
		return fmt.Errorf("backoff %s or max backoff %s is longer than %s, for which a message can be hidden", l.Backoff, l.MaxBackoff, MostBackoff)
	}
	return nil
}
