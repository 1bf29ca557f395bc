package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/job"
)

// recheckEvery is how often a running job's estimate is checked once claiming has
// ended.
const recheckEvery = 5 * time.Second

// errAbandoned stands for a handler that did not return in time.
var errAbandoned = errors.New("handler did not return in time")

// runHandler runs the handler and records its progress until it ends, or until it
// was stopped and its time is over.
func (d *delivery) runHandler(ctx context.Context, handler job.Handler) ended {
	done := make(chan ended, 1)
	d.closed = make(chan struct{})
	d.startFraction = fractionOf(d.saved, 0)
	watch := startStopwatch()
	d.claim.CountTime(watch.elapsed)
	d.chargeExits(watch)
	defer d.enforceLimits(ctx, d.jobLimits, watch)()
	go func() {
		defer close(d.closed)
		defer d.idLock.unlock()
		end := d.callHandler(ctx, handler)
		watch.stop()
		done <- end
		<-d.finished
		d.closeJob(ctx)
	}()

	seat := d.running.add()
	defer seat.remove()
	since, tried := time.Now(), time.Time{}
	for {
		if late := d.departureDrain(since, time.Now()); late != nil {
			d.cancel(late)
			return d.waitHandler(ctx, done, ended{})
		}
		due, wait := d.Policy.Next(d.situation(since, tried), time.Now())
		rounds := seat.takeRequests()
		if due != checkpoint.Nothing || len(rounds) > 0 && d.changed() {
			if end, over := d.writeAndAnswer(ctx, rounds, due); over {
				return d.waitHandler(ctx, done, end)
			}
			tried = time.Now() // after it, so that a long save is followed by work
			continue
		}
		answer(rounds, true)
		timer := time.NewTimer(min(wait, recheckEvery))
		select {
		case end := <-done:
			timer.Stop()
			end.stop = job.StopOf(ctx)
			return end
		case <-ctx.Done():
			timer.Stop()
			return d.waitHandler(ctx, done, ended{})
		case <-seat.woken:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// writeAndAnswer makes the write that is due. If rounds ask for it, it is a save of
// what is not recorded, which waits for its turn among those of the other jobs,
// and the rounds get their answer.
func (d *delivery) writeAndAnswer(ctx context.Context, rounds []*saveRequest, due checkpoint.Due) (end ended, over bool) {
	if len(rounds) == 0 || !d.changed() {
		defer answer(rounds, true)
		return d.writeDue(ctx, due)
	}
	before := d.saved
	defer func() { answer(rounds, d.saved != before) }()
	leave, err := d.gate.Enter(ctx, d.unsavedSize())
	if err != nil {
		return ended{}, false // stopped: the release saves
	}
	defer leave()
	return d.writeDue(ctx, checkpoint.DueSave)
}

// callHandler runs the handler. A panic is an error like any other.
func (d *delivery) callHandler(ctx context.Context, handler job.Handler) (end ended) {
	defer func() {
		if p := recover(); p != nil {
			d.log.ErrorContext(ctx, "handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			end = ended{err: fmt.Errorf("handler panicked: %v", p)}
		}
	}()
	result, err := handler.Run(ctx, d.job)
	return ended{result: result, err: err, proven: err == nil && provesDone(ctx.Err() != nil, result, d.job.Latest())}
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

// waitHandler waits for a handler that was stopped, up to its deadline. What end
// already holds goes before what the handler returns.
func (d *delivery) waitHandler(ctx context.Context, done <-chan ended, end ended) ended {
	patience, cancel := drain.Outlive(ctx, drain.UntilHandlers)
	defer cancel()
	select {
	case e := <-done:
		end.result, end.err, end.proven = e.result, e.err, e.proven
	case <-patience.Done():
		d.log.ErrorContext(ctx, "handler did not return in time; going on without it", "reason", drain.StopOf(ctx).Reason)
		end.err, end.abandoned, d.abandoned = errAbandoned, true, true
	}
	end.stop = drain.StopOf(ctx)
	return end
}

// estimate is how far this job has come since its handler was called.
func (d *delivery) estimate(begun time.Time) drain.Estimate {
	return drain.Estimate{Begun: begun, From: d.startFraction, To: fractionOf(d.job.Latest(), d.startFraction)}
}

// fractionOf is that of a report, or otherwise where there is none.
func fractionOf(p *job.Progress, otherwise float64) float64 {
	if p == nil {
		return otherwise
	}
	return p.Fraction
}

// departureDrain returns the drain of this job alone if it would not be done before
// the VM goes, otherwise nil.
func (d *delivery) departureDrain(begun, now time.Time) *drain.Drain {
	p := d.departure.Current()
	if p.MayContinue(d.estimate(begun), now) {
		return nil
	}
	return drain.ForNotice(p.Notice(now))
}
