package job

import (
	"cmp"
	"fmt"
	"time"
)

// Defaults of the limits on attempts.
const (
	DefaultMaxFailures = 5
	DefaultBackoff     = 10 * time.Second
)

// Bounds of the attempts of a job, whatever its kind.
const (
	// MaxTotalFailures is how many failures in all dead-letter a job, with or without
	// progress: a handler may report a new state each time before it fails.
	MaxTotalFailures = 100

	// MaxBreaks is how many breaks in a row ([Interrupted]) dead-letter a job. The count
	// starts again when the fraction at a break is higher than ever before.
	MaxBreaks = 1000

	// MaxBackoff is the longest wait between attempts, unless Backoff is longer.
	MaxBackoff = 10 * time.Minute
)

// MostBackoff is the longest Backoff of a kind.
const MostBackoff = 24 * time.Hour

// Limits are the limits of a kind's jobs. For a limit on time or concurrency, 0 means
// none; for one on attempts, 0 means the default.
type Limits struct {
	// MaxRun is the total run time of a job over all its deliveries: from each call of
	// the handler to its return, without the time in the queue. Of a pause in which the
	// worker or its VM is frozen 2 s count at most. After a crash, the time since the
	// last write of the record is unknown and not counted: a checkpoint interval, or up
	// to 10 minutes if the state did not change.
	MaxRun time.Duration

	// MaxSilence is the longest time without a report, from the call of the handler or
	// the last [Job.Report], with or without a state. Pauses count as for MaxRun.
	MaxSilence time.Duration

	// Concurrency is how many jobs of the kind one worker runs at once. Further jobs
	// wait, or run on another worker; waiting is not a failure.
	Concurrency int

	// MaxFailures is how many failures in a row, without progress between them,
	// dead-letter a job. Default [DefaultMaxFailures].
	MaxFailures int

	// Backoff is the delay after the first failure. It doubles with each further
	// failure in a row, up to [MaxBackoff]. For breaks it doubles with every ten.
	// Default [DefaultBackoff].
	Backoff time.Duration
}

// WithLimits returns h with limits. A job that exceeds MaxRun or MaxSilence is stopped
// with the reason [Overrun] or [Silent], which is a failure regardless of the handler's
// return value. After [Silent] the job is retried as after any failure; after [Overrun]
// it is dead-lettered, because a retry could only run longer. If h has limits already,
// or the job's message has some, the stricter one of each applies.
func WithLimits(h Handler, l Limits) Handler {
	return limited{Handler: h, limits: LimitsOf(h).Stricter(l)}
}

type limited struct {
	Handler
	limits Limits
}

func (h limited) Limits() Limits { return h.limits }

// LimitsOf returns the limits of a handler: those given to [WithLimits], or the result
// of its own method Limits. The worker reads them once for each job.
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

		MaxFailures: stricter(l.MaxFailures, other.MaxFailures),
		Backoff:     max(l.Backoff, other.Backoff),
	}
}

// WithDefaults returns l with the defaults for those limits on attempts that are 0.
func (l Limits) WithDefaults() Limits {
	l.MaxFailures = cmp.Or(l.MaxFailures, DefaultMaxFailures)
	l.Backoff = cmp.Or(l.Backoff, DefaultBackoff)
	return l
}

// stricter returns the smaller of two limits; 0 means no limit.
func stricter[T int | time.Duration](a, b T) T {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	}
	return min(a, b)
}

// Validate returns an error that says what to change, or nil.
func (l Limits) Validate() error {
	switch {
	case l.MaxRun < 0:
		return fmt.Errorf("max run %s is negative: give a duration, or 0 for no limit", l.MaxRun)
	case l.MaxSilence < 0:
		return fmt.Errorf("max silence %s is negative: give a duration, or 0 for no limit", l.MaxSilence)
	case l.Concurrency < 0:
		return fmt.Errorf("concurrency %d is negative: give a number of jobs, or 0 for no limit", l.Concurrency)
	case l.MaxFailures < 0:
		return fmt.Errorf("max failures %d is negative: give a number, or 0 for the default", l.MaxFailures)
	case l.Backoff < 0:
		return fmt.Errorf("backoff %s is negative: give a duration, or 0 for the default", l.Backoff)
	case l.Backoff > MostBackoff:
		return fmt.Errorf("backoff %s is longer than %s, for which a message can be hidden", l.Backoff, MostBackoff)
	}
	return nil
}
