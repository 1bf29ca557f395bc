package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/job"
)

// errAbandoned stands for a handler that did not return in time.
var errAbandoned = errors.New("handler did not return in time")

// process runs the handler and records its progress until it ends, or until it
// was stopped and its time is over.
func (d *delivery) process(ctx context.Context, handler job.Handler) ended {
	done := make(chan ended, 1)
	d.closed = make(chan struct{})
	d.from = fractionOf(d.saved, 0)
	watch := startWatch()
	d.claim.CountTime(watch.elapsed)
	defer d.keepLimits(ctx, d.limits(handler), watch)()
	go func() {
		defer close(d.closed)
		end := d.call(ctx, handler)
		watch.stop()
		done <- end
		<-d.performed
		d.closeJob(ctx)
	}()

	seat := d.atWork.enter()
	defer seat.leave()
	since, tried := time.Now(), time.Time{}
	for {
		if drain := d.overstays(since, time.Now()); drain != nil {
			d.cancel(drain)
			return d.join(ctx, done, ended{})
		}
		due, wait := d.Policy.Next(d.situation(since, tried), time.Now())
		rounds := seat.take()
		if due != checkpoint.Nothing || len(rounds) > 0 && d.changed() {
			if end, over := d.recordFor(ctx, rounds, due); over {
				return d.join(ctx, done, end)
			}
			tried = time.Now() // after it, so that a long save is followed by work
			continue
		}
		answer(rounds, true)
		timer := time.NewTimer(min(wait, lookAgain))
		select {
		case end := <-done:
			timer.Stop()
			end.stop = job.StopOf(ctx)
			return end
		case <-ctx.Done():
			timer.Stop()
			return d.join(ctx, done, ended{})
		case <-seat.called:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// recordFor makes the write that is due. If rounds ask for it, it is a save of
// what is not recorded, which waits for its turn among those of the other jobs,
// and the rounds get their answer.
func (d *delivery) recordFor(ctx context.Context, rounds []*round, due checkpoint.Due) (end ended, over bool) {
	if len(rounds) == 0 || !d.changed() {
		defer answer(rounds, true)
		return d.record(ctx, due)
	}
	before := d.saved
	defer func() { answer(rounds, d.saved != before) }()
	leave, err := d.gate.enter(ctx, d.unsavedSize())
	if err != nil {
		return ended{}, false // stopped: the release saves
	}
	defer leave()
	return d.record(ctx, checkpoint.DueSave)
}

// call runs the handler. A panic is an error like any other.
func (d *delivery) call(ctx context.Context, handler job.Handler) (end ended) {
	defer func() {
		if p := recover(); p != nil {
			d.log.ErrorContext(ctx, "handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			end = ended{err: fmt.Errorf("handler panicked: %v", p)}
		}
	}()
	result, err := handler.Run(ctx, d.job)
	return ended{result: result, err: err}
}

// closeJob runs the cleanups of a handler that has returned. They are user code
// like the handler.
func (d *delivery) closeJob(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			d.log.ErrorContext(ctx, "cleanup of a handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	d.job.Close()
}

// join waits for a handler that was stopped, up to its deadline. What end
// already holds goes before what the handler returns.
func (d *delivery) join(ctx context.Context, done <-chan ended, end ended) ended {
	late, cancel := context.WithCancel(context.Background())
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		awaitEnd(late, context.Cause(ctx), func() time.Time { return stopOf(ctx).Deadline })
	}()
	select {
	case e := <-done:
		end.result, end.err = e.result, e.err
	case <-over:
		d.log.ErrorContext(ctx, "handler did not return in time; going on without it", "reason", stopOf(ctx).Reason)
		end.err, end.abandoned, d.abandoned = errAbandoned, true, true
	}
	end.stop = stopOf(ctx)
	return end
}

// situation is what the policy needs to know.
func (d *delivery) situation(since, tried time.Time) checkpoint.Situation {
	return checkpoint.Situation{
		Since: since, Written: d.claim.Exists(), WrittenAt: tried, Failed: d.failed, Changed: d.changed(),
		Cost: d.cost.Mean(), Losses: d.forecast.losses(), Unwarned: d.forecast.unwarned(time.Now()) || d.outlook.current().advised,
	}
}

// changed reports whether a state was reported that is not recorded.
func (d *delivery) changed() bool {
	latest := d.job.Latest()
	return latest.HasState() && !latest.SameState(d.saved)
}

// record makes the write that is due. Over is true when the job must end: its
// record went to another, or its state cannot be kept.
func (d *delivery) record(ctx context.Context, due checkpoint.Due) (end ended, over bool) {
	latest := d.job.Latest()
	if fault := tooLarge(latest); fault != nil {
		d.stopAlone(job.Faulty, fault)
		return ended{fault: fault}, true
	}
	ctx, cancel := outlive(ctx, stopDeadline)
	defer cancel()
	begun := time.Now()
	err := d.write(ctx, due, latest)
	d.failed = err != nil
	switch conflict := asConflict(err); {
	case conflict != nil:
		d.log.WarnContext(ctx, "record is another's now; stopping the job", "error", err)
		d.stopAlone(job.Fenced, err)
		return ended{conflict: conflict}, true
	case errors.Is(err, checkpoint.ErrTooLarge):
		d.stopAlone(job.Faulty, err)
		return ended{fault: err}, true
	case errors.Is(err, checkpoint.ErrReading):
		d.log.DebugContext(ctx, "checkpoint put off: the handler is still reading the one before")
		end, over = d.record(ctx, checkpoint.DueTouch) // so that a long reading does not look like a death
		d.failed = true
		return end, over
	case err != nil:
		d.log.WarnContext(ctx, "checkpoint not saved; the one before stands", "error", err)
	case due == checkpoint.DueSave:
		d.saved = latest
		took := time.Since(begun)
		d.cost.Add(took)
		next := d.Policy.IntervalFor(d.situation(begun, begun))
		d.log.DebugContext(ctx, "checkpoint saved", "bytes", d.claim.Record().StateSize, "fraction", latest.Fraction, "took", took, "interval", next)
	}
	return ended{}, false
}

func (d *delivery) write(ctx context.Context, due checkpoint.Due, latest *job.Progress) error {
	if due == checkpoint.DueTouch {
		return d.claim.Touch(ctx, snapshotOf(latest))
	}
	return d.observeSave(func() error { return d.claim.Save(ctx, snapshotOf(latest)) })
}

// saveStream saves a streamed state of a job that failed before its failure is
// counted: only then it is known whether the job made progress. What it learns
// of state and record goes into end.
func (d *delivery) saveStream(ctx context.Context, end ended) ended {
	latest, s := d.job.Latest(), d.unsaved()
	if s.Stream == nil {
		return end
	}
	ctx, cancel := outlive(ctx, statesEnd)
	defer cancel()
	err := d.insist(ctx, "save the state of a failed job", func() error { return d.observeSave(func() error { return d.claim.Save(ctx, s) }) })
	switch conflict := asConflict(err); {
	case err == nil:
		d.saved = latest
	case conflict != nil:
		end.conflict = conflict
	case errors.Is(err, checkpoint.ErrTooLarge):
		end.fault = err
	default:
		d.log.WarnContext(ctx, "state of a failed job not saved; the one before stands", "error", err)
	}
	return end
}

// tooLarge reports a state that cannot be kept.
func tooLarge(p *job.Progress) error {
	if p != nil && len(p.State) > job.MaxState {
		return fmt.Errorf("state has %d bytes; at most %d are allowed in one piece: report it as a stream", len(p.State), job.MaxState)
	}
	return nil
}

// snapshot is the last report as it goes into the record.
func (d *delivery) snapshot() checkpoint.Snapshot {
	if d.job == nil {
		return checkpoint.Snapshot{}
	}
	return snapshotOf(d.job.Latest())
}

func snapshotOf(p *job.Progress) checkpoint.Snapshot {
	if p == nil {
		return checkpoint.Snapshot{}
	}
	return checkpoint.Snapshot{State: p.State, Stream: p.Stream, Version: p.Version, Fraction: p.Fraction, Text: p.Text}
}
