package drain

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/job"
)

// OneJobGrace is how long a handler may take to return when its job alone was
// stopped: its message or its record went to another worker.
const OneJobGrace = 5 * time.Second

// OneJobStates is how long the last state of such a job may be sent, as long as
// not all work is stopped.
const OneJobStates = time.Minute

// Drain is the cause with which all work is stopped: why, and the times to keep
// to. The clock starts when the notice is seen.
//
//	seen ──── handlers stop ────▶ states are sent ────▶ records only ────▶ end
//	           ½ of the budget            ¾                                 1
//
// A more urgent notice brings these times nearer while the drain goes on; nothing
// puts them off.
type Drain struct {
	Reason    job.Reason
	err       error
	Seen      time.Time
	notBefore time.Time // see [job.Stop]
	OneJob    bool      // one job is stopped for a reason of its own, and no VM goes

	mu       sync.Mutex
	schedule Schedule
	changed  chan struct{} // closed when the times are not these any more
}

// Schedule are those of a drain.
type Schedule struct {
	Handlers time.Time // the end of the handlers' time
	States   time.Time // until then states are sent; after it, metadata alone
	End      time.Time // everything is released
}

func New(reason job.Reason, err error, seen time.Time, budget time.Duration) *Drain {
	return &Drain{
		Reason: reason, err: err, Seen: seen, changed: make(chan struct{}),
		schedule: Schedule{Handlers: seen.Add(budget / 2), States: seen.Add(budget * 3 / 4), End: seen.Add(budget)},
	}
}

// ForNotice is the drain that a notice calls for.
func ForNotice(n preempt.Notice) *Drain {
	d := New(job.Evicted, &preempt.Error{Notice: n}, n.SeenAt, n.Deadline.Sub(n.SeenAt))
	d.notBefore = n.NotBefore
	return d
}

// ForJob is the drain of one job that is stopped for a reason of its own. A drain
// of the worker shortens its times.
func ForJob(reason job.Reason, err error, now time.Time) *Drain {
	return &Drain{
		Reason: reason, err: err, Seen: now, OneJob: true, changed: make(chan struct{}),
		schedule: Schedule{Handlers: now.Add(OneJobGrace), States: now.Add(OneJobStates), End: now.Add(OneJobStates)},
	}
}

// Schedule returns the times to keep to, and a channel that is closed when they
// come nearer.
func (d *Drain) Schedule() (Schedule, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.schedule, d.changed
}

func (d *Drain) End() time.Time {
	t, _ := d.Schedule()
	return t.End
}

// shorten brings the times nearer where those of limit are, and reports whether
// any was.
func (d *Drain) shorten(limit Schedule) bool {
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
func (t Schedule) earliest(limit Schedule) Schedule {
	return Schedule{
		Handlers: earlier(t.Handlers, limit.Handlers), States: earlier(t.States, limit.States), End: earlier(t.End, limit.End),
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Stop is what the handlers are told, as of now.
func (d *Drain) Stop() *job.Stop {
	t, _ := d.Schedule()
	return &job.Stop{Reason: d.Reason, Deadline: t.Handlers, NotBefore: d.notBefore, Err: d.err}
}

func (d *Drain) Error() string { return d.Stop().Error() }

// Unwrap lets a handler find the [job.Stop] in its context's cause.
func (d *Drain) Unwrap() error { return d.Stop() }

// Of returns the drain that stopped ctx, or nil.
func Of(ctx context.Context) *Drain {
	if d, ok := errors.AsType[*Drain](context.Cause(ctx)); ok {
		return d
	}
	return nil
}

// StopOf returns why ctx was stopped. A context that ended without a cause of
// ours counts as a shutdown without time.
func StopOf(ctx context.Context) *job.Stop {
	if stop := job.StopOf(ctx); stop != nil {
		return stop
	}
	return &job.Stop{Reason: job.Shutdown, Deadline: time.Now(), Err: context.Cause(ctx)}
}

// Outlive returns a context that goes on after ctx was stopped, until the time
// that until gives for the cause and the moment of the stop. A drain that is
// shortened meanwhile counts. Its values are those of ctx. Cancel frees it.
func Outlive(ctx context.Context, until func(cause error, stopped time.Time) time.Time) (context.Context, context.CancelFunc) {
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
	if d, ok := errors.AsType[*Drain](cause); ok {
		_, changed := d.Schedule()
		return changed
	}
	return nil
}

// UntilEnd is the time up to which last writes may go on.
func UntilEnd(cause error, stopped time.Time) time.Time {
	if d, ok := errors.AsType[*Drain](cause); ok {
		return d.End()
	}
	return stopped
}

// UntilAfter returns an outlive time: that long after the stop.
func UntilAfter(grace time.Duration) func(error, time.Time) time.Time {
	return func(_ error, stopped time.Time) time.Time { return stopped.Add(grace) }
}

// UntilHandlers is the time up to which the handler, and a save that is under
// way for it, may go on.
func UntilHandlers(cause error, stopped time.Time) time.Time {
	if stop, ok := errors.AsType[*job.Stop](cause); ok {
		return stop.Deadline
	}
	return stopped
}

// UntilStates is the time up to which the state of a job that was stopped may be
// sent. Of one that ended by itself it may be sent as long as nothing stops it.
func UntilStates(cause error, stopped time.Time) time.Time {
	if drain, ok := errors.AsType[*Drain](cause); ok {
		t, _ := drain.Schedule()
		return t.States
	}
	return stopped.Add(OneJobStates)
}

// UntilMoves is the time up to which jobs are moved in a drain: after the states,
// with as much left for a release. Otherwise moveTimeout alone counts.
func UntilMoves(cause error, stopped time.Time) time.Time {
	if d, ok := errors.AsType[*Drain](cause); ok {
		t, _ := d.Schedule()
		return t.States.Add(t.End.Sub(t.States) / 2)
	}
	return stopped.Add(time.Minute)
}
