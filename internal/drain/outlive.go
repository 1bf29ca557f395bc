package drain

import (
	"context"
	"errors"
	"time"

	"github.com/spotworker/spotworker/job"
)

// Until returns how long a context outlives its parent's stop, given the cause of
// the stop and the time of it. It is called again when the cause is a drain whose
// schedule is shortened.
type Until func(cause error, stopped time.Time) time.Time

// Outlive returns a context with the values of ctx that continues after ctx was
// stopped, until the time that until gives. Cancel frees it.
func Outlive(ctx context.Context, until Until) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		cause, stopped := context.Cause(ctx), time.Now()
		await(out, cause, func() time.Time { return until(cause, stopped) })
		cancel(cause)
	})
	return out, func() { stop(); cancel(nil) }
}

// await returns when the time that end gives has come, or ctx ends. It asks again
// when the drain that is the cause is shortened.
func await(ctx context.Context, cause error, end func() time.Time) {
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

// changedOf returns a channel that is closed when the drain that is the cause is
// shortened. It is nil for any other cause.
func changedOf(cause error) <-chan struct{} {
	if d, ok := errors.AsType[*Drain](cause); ok {
		_, changed := d.Schedule()
		return changed
	}
	return nil
}

// UntilEnd is the end of the drain: the last writes continue up to it.
func UntilEnd(cause error, stopped time.Time) time.Time {
	if d, ok := errors.AsType[*Drain](cause); ok {
		return d.End()
	}
	return stopped
}

// UntilHandlers is the deadline of the handlers: saves under way for them continue
// up to it.
func UntilHandlers(cause error, stopped time.Time) time.Time {
	if stop, ok := errors.AsType[*job.Stop](cause); ok {
		return stop.Deadline
	}
	return stopped
}

// UntilStates is the deadline of the states. A job that nothing stopped has
// [OneJobStates] for its last one.
func UntilStates(cause error, stopped time.Time) time.Time {
	if d, ok := errors.AsType[*Drain](cause); ok {
		s, _ := d.Schedule()
		return s.States
	}
	return stopped.Add(OneJobStates)
}

// UntilMoves is the deadline for moving jobs to another queue: half-way between the
// deadline of states and the end, so that there is time to release a job that could not
// be moved. Without a drain it is far off.
func UntilMoves(cause error, stopped time.Time) time.Time {
	if d, ok := errors.AsType[*Drain](cause); ok {
		s, _ := d.Schedule()
		return s.States.Add(s.End.Sub(s.States) / 2)
	}
	return stopped.Add(time.Minute)
}

// UntilAfter returns an [Until] of that long after the stop.
func UntilAfter(grace time.Duration) Until {
	return func(_ error, stopped time.Time) time.Time { return stopped.Add(grace) }
}
