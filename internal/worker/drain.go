package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/job"
)

// oneJobGrace is how long a handler may take to return when its job alone was
// stopped: its message or its record went to another worker.
const oneJobGrace = 5 * time.Second

// oneJobStates is how long the last state of such a job may be sent, as long as
// not all work is stopped.
const oneJobStates = time.Minute

// drain is the cause with which all work is stopped: why, and the times to keep
// to. The clock starts when the notice is seen.
//
//	seen ──── handlers stop ────▶ states are sent ────▶ records only ────▶ end
//	           ½ of the budget            ¾                                 1
//
// A more urgent notice brings these times nearer while the drain goes on; nothing
// puts them off.
type drain struct {
	reason    job.Reason
	err       error
	seen      time.Time
	notBefore time.Time // see [job.Stop]
	oneJob    bool      // one job is stopped for a reason of its own, and no VM goes

	mu       sync.Mutex
	schedule schedule
	changed  chan struct{} // closed when the times are not these any more
}

// schedule are those of a drain.
type schedule struct {
	handlers time.Time // the end of the handlers' time
	states   time.Time // until then states are sent; after it, metadata alone
	end      time.Time // everything is released
}

func newDrain(reason job.Reason, err error, seen time.Time, budget time.Duration) *drain {
	return &drain{
		reason: reason, err: err, seen: seen, changed: make(chan struct{}),
		schedule: schedule{handlers: seen.Add(budget / 2), states: seen.Add(budget * 3 / 4), end: seen.Add(budget)},
	}
}

// drainForNotice is the drain that a notice calls for.
func drainForNotice(n preempt.Notice) *drain {
	d := newDrain(job.Evicted, &preempt.Error{Notice: n}, n.SeenAt, n.Deadline.Sub(n.SeenAt))
	d.notBefore = n.NotBefore
	return d
}

// drainOneJob is the drain of one job that is stopped for a reason of its own. A drain
// of the worker shortens its times.
func drainOneJob(reason job.Reason, err error, now time.Time) *drain {
	return &drain{
		reason: reason, err: err, seen: now, oneJob: true, changed: make(chan struct{}),
		schedule: schedule{handlers: now.Add(oneJobGrace), states: now.Add(oneJobStates), end: now.Add(oneJobStates)},
	}
}

// current returns the times to keep to, and a channel that is closed when they
// come nearer.
func (d *drain) current() (schedule, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.schedule, d.changed
}

func (d *drain) end() time.Time {
	t, _ := d.current()
	return t.end
}

// shorten brings the times nearer where those of limit are, and reports whether
// any was.
func (d *drain) shorten(limit schedule) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	nearer := d.schedule.earliest(limit)
	if nearer == d.schedule {
		return false
	}
	d.schedule = nearer
	close(d.changed)
	d.changed = make(chan struct{})
	return true
}

// earliest returns the earlier of each of the times.
func (t schedule) earliest(limit schedule) schedule {
	return schedule{
		handlers: earlier(t.handlers, limit.handlers), states: earlier(t.states, limit.states), end: earlier(t.end, limit.end),
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// stop is what the handlers are told, as of now.
func (d *drain) stop() *job.Stop {
	t, _ := d.current()
	return &job.Stop{Reason: d.reason, Deadline: t.handlers, NotBefore: d.notBefore, Err: d.err}
}

func (d *drain) Error() string { return d.stop().Error() }

// Unwrap lets a handler find the [job.Stop] in its context's cause.
func (d *drain) Unwrap() error { return d.stop() }

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
// that until gives for the cause and the moment of the stop. A drain that is
// shortened meanwhile counts. Its values are those of ctx. Cancel frees it.
func outlive(ctx context.Context, until func(cause error, stopped time.Time) time.Time) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		cause, stopped := context.Cause(ctx), time.Now()
		awaitEnd(out, cause, func() time.Time { return until(cause, stopped) })
		cancel(cause)
	})
	return out, func() { stop(); cancel(nil) }
}

// awaitEnd returns at the time that end gives, which comes nearer when the drain
// that is the cause does, or when ctx ends.
func awaitEnd(ctx context.Context, cause error, end func() time.Time) {
	for {
		changed := changedOf(cause)
		timer := time.NewTimer(time.Until(end()))
		select {
		case <-timer.C:
			return
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
			timer.Stop()
		}
	}
}

// changedOf returns a channel that is closed when the times of the drain that is
// the cause come nearer. Those of any other cause never do.
func changedOf(cause error) <-chan struct{} {
	if d, ok := errors.AsType[*drain](cause); ok {
		_, changed := d.current()
		return changed
	}
	return nil
}

// drainEnd is the time up to which last writes may go on.
func drainEnd(cause error, stopped time.Time) time.Time {
	if d, ok := errors.AsType[*drain](cause); ok {
		return d.end()
	}
	return stopped
}

// briefly returns an outlive time: that long after the stop.
func briefly(grace time.Duration) func(error, time.Time) time.Time {
	return func(_ error, stopped time.Time) time.Time { return stopped.Add(grace) }
}

// stopDeadline is the time up to which the handler, and a save that is under
// way for it, may go on.
func stopDeadline(cause error, stopped time.Time) time.Time {
	if stop, ok := errors.AsType[*job.Stop](cause); ok {
		return stop.Deadline
	}
	return stopped
}
