package worker

import (
	"context"
	"errors"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/job"
)

// strayGrace is how long a handler may take to return when its job alone was
// stopped: its message or its record went to another worker.
const strayGrace = 5 * time.Second

// drain is the cause with which all work is stopped: why, and the times to keep
// to. The clock starts when the notice is seen.
//
//	seen ──── handlers stop ────▶ states are sent ────▶ records only ────▶ end
//	           ½ of the budget            ¾                                 1
type drain struct {
	stop   *job.Stop // its Deadline is the end of the handlers' time
	seen   time.Time
	states time.Time // until then states are sent; after it, metadata alone
	end    time.Time // everything is released
}

func newDrain(reason job.Reason, err error, seen time.Time, budget time.Duration) *drain {
	return &drain{
		stop:   &job.Stop{Reason: reason, Deadline: seen.Add(budget / 2), Err: err},
		seen:   seen,
		states: seen.Add(budget * 3 / 4),
		end:    seen.Add(budget),
	}
}

// drainFor is the drain that a notice calls for.
func drainFor(n preempt.Notice) *drain {
	d := newDrain(job.Evicted, &preempt.Error{Notice: n}, n.SeenAt, n.Deadline.Sub(n.SeenAt))
	d.stop.NotBefore = n.NotBefore
	return d
}

func (d *drain) Error() string { return d.stop.Error() }

// Unwrap lets a handler find the [job.Stop] in its context's cause.
func (d *drain) Unwrap() error { return d.stop }

// drainOf returns the drain that stopped ctx, or nil.
func drainOf(ctx context.Context) *drain {
	if d, ok := errors.AsType[*drain](context.Cause(ctx)); ok {
		return d
	}
	return nil
}

// stopOf returns why ctx was stopped. A context that ended without a cause of
// ours counts as a shutdown without time.
func stopOf(ctx context.Context) *job.Stop {
	if stop := job.StopOf(ctx); stop != nil {
		return stop
	}
	return &job.Stop{Reason: job.Shutdown, Deadline: time.Now(), Err: context.Cause(ctx)}
}

// outlive returns a context that goes on after ctx was stopped, until the time
// that until gives for the cause. Its values are those of ctx. Cancel frees it.
func outlive(ctx context.Context, until func(cause error) time.Time) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		timer := time.NewTimer(time.Until(until(cause)))
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(cause)
		case <-out.Done():
		}
	})
	return out, func() { stop(); cancel(nil) }
}

// drainEnd is the time up to which last writes may go on.
func drainEnd(cause error) time.Time {
	if d, ok := errors.AsType[*drain](cause); ok {
		return d.end
	}
	return time.Now()
}

// briefly returns an outlive time: that long after the stop.
func briefly(grace time.Duration) func(error) time.Time {
	return func(error) time.Time { return time.Now().Add(grace) }
}

// stopDeadline is the time up to which the handler, and a save that is under
// way for it, may go on.
func stopDeadline(cause error) time.Time {
	if stop, ok := errors.AsType[*job.Stop](cause); ok {
		return stop.Deadline
	}
	return time.Now()
}
