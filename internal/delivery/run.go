package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/running"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/outage"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

// recheckEvery is how often a running job's estimate is checked once claiming has
// ended.
const recheckEvery = 5 * time.Second

// errAbandoned is the error of a handler that did not return in time.
var errAbandoned = errors.New("handler did not return in time")

// errPanicked is the error of a handler that panicked.
var errPanicked = errors.New("handler panicked")

// run is one run of a handler.
type run struct {
	*running.Job
	over     chan struct{} // closed when the handler has returned
	returned ended         // what it returned; set before over is closed
	end      ended         // how the run ended; what is set before the handler returned takes precedence
	since    time.Time     // when the handler was called
	tried    time.Time     // when a write was tried last

	stopLimits func()
}

// runHandler calls the handler and records its progress until it returns, or until it
// was stopped and its deadline has passed. How the run ended is in d.run.end.
func (d *Delivery) runHandler(ctx context.Context, handler job.Handler) {
	r := d.startHandler(ctx, handler)
	defer d.endRun()
	timer := time.NewTimer(recheckEvery)
	defer timer.Stop()
	for {
		wait, over := d.attend(ctx, r)
		if over {
			d.waitHandler(ctx, r)
			return
		}
		timer.Reset(wait)
		select {
		case <-r.over:
			r.end = r.returned
			r.end.stop = job.StopOf(ctx)
			return
		case <-ctx.Done():
			d.waitHandler(ctx, r)
			return
		case <-r.Woken():
		case <-timer.C:
		}
	}
}

// startHandler calls the handler in a goroutine of its own.
func (d *Delivery) startHandler(ctx context.Context, handler job.Handler) *run {
	watch := running.Start(d.job.Latest())
	d.closed, d.watch = make(chan struct{}), watch
	d.startFraction = fractionOf(d.saved, 0)
	d.claim.CountTime(watch.Elapsed)
	d.claim.ExpectWrites(d.nextWrite)
	d.chargeExits(watch)
	d.job.OnReport(func(p *job.Progress) {
		watch.Stamp(p)
		if d.jobLimits.MaxSilence > 0 {
			watch.Reported()
		}
	})
	r := &run{over: make(chan struct{}), stopLimits: d.enforceLimits(ctx, d.jobLimits, watch)}
	d.run = r
	go d.callAndClose(ctx, handler, r)
	r.Job, r.since = d.runner.running.Add(watch), time.Now()
	return r
}

// callAndClose calls the handler, and its cleanups when the job has been dealt with.
func (d *Delivery) callAndClose(ctx context.Context, handler job.Handler, r *run) {
	defer close(d.closed)
	defer d.idLock.Unlock()
	d.callHandler(ctx, handler, &r.returned)
	d.watch.Stop()
	close(r.over)
	<-d.finished
	d.closeJob(ctx)
}

// endRun frees what the run holds.
func (d *Delivery) endRun() {
	d.run.Remove()
	d.run.stopLimits()
}

// attend makes the write that is due and what else there is to do for a running job. It
// returns how long to wait until there may be more to do, or that the job has to end. Its
// calls have small frames, so that the goroutine's stack stays small: each job turns every
// few seconds.
func (d *Delivery) attend(ctx context.Context, r *run) (wait time.Duration, over bool) {
	for {
		d.noticeReport()
		if r.end, over = d.checkCancelled(ctx); over {
			return 0, true
		}
		if d.runner.departure.Closed() && d.leavesForDeparture(r.since) {
			return 0, true
		}
		due, wait := d.runner.policy.Next(d.situation(r.since, r.tried), time.Now())
		requests := r.TakeRequests()
		if due == checkpoint.Nothing && (len(requests) == 0 || !d.changed()) {
			running.Answer(requests, true)
			return min(wait, recheckEvery), false
		}
		if d.writeAside(ctx, r, requests, due) {
			return 0, true
		}
		r.tried = time.Now() // after it, so that a long save is followed by work
	}
}

// writeAside is writeAndAnswer in a goroutine for calls: a call to storage needs a deep
// stack, which would stay with the goroutine of the job. As few are in flight at once as
// their gate admits.
func (d *Delivery) writeAside(ctx context.Context, r *run, requests []*running.SaveRequest, due checkpoint.Due) (over bool) {
	d.aside(func() { r.end, over = d.writeAndAnswer(ctx, requests, due) })
	return over
}

// checkCancelled reads the job's record if an operator has announced since the last
// time that the job, or any, was cancelled. over is true if the record is not this
// delivery's any more, for that or another reason. A read that fails is tried again.
func (d *Delivery) checkCancelled(ctx context.Context) (end ended, over bool) {
	announced := d.runner.cancelledAt(d.envelope.ID)
	if !announced.After(d.cancelChecked) || time.Now().Before(d.cancelRetry) || ctx.Err() != nil {
		return ended{}, false
	}
	err := d.claim.Check(ctx)
	if conflict := asConflict(err); conflict != nil {
		return d.stopForConflict(ctx, conflict), true
	}
	if err != nil {
		d.log.Log(ctx, outage.Level(err, slog.LevelWarn), "cannot read whether the job was cancelled; trying again", "error", err, "retry_in", recheckEvery)
		d.cancelRetry = time.Now().Add(recheckEvery)
		return ended{}, false
	}
	d.cancelChecked = announced
	return ended{}, false
}

// stopForConflict stops the job because its record is not this delivery's any more.
func (d *Delivery) stopForConflict(ctx context.Context, conflict *checkpoint.ConflictError) ended {
	if r := conflict.Record; r.Status == checkpoint.Cancelled {
		d.log.InfoContext(ctx, "job was cancelled; stopping it", "cancelled_by", r.Owner, "reason", r.Reason)
		d.output.LeaveRecord()
		d.stopJob(job.Cancelled, fmt.Errorf("by %s: %s", r.Owner, r.Reason))
	} else {
		d.log.WarnContext(ctx, "another worker owns the job now; stopping it here", "error", conflict)
		d.stopJob(job.Fenced, conflict)
	}
	return ended{conflict: conflict}
}

// writeAndAnswer makes the write that is due, and answers the save requests. If there
// are some and the state is not recorded yet, the write is a save, which waits at the
// gate for its turn among the other jobs.
func (d *Delivery) writeAndAnswer(ctx context.Context, requests []*running.SaveRequest, due checkpoint.Due) (end ended, over bool) {
	if len(requests) == 0 || !d.changed() {
		defer running.Answer(requests, true)
		return d.writeInTurn(ctx, due)
	}
	before := d.saved
	defer func() { running.Answer(requests, d.saved != before) }()
	leave, err := d.runner.gate.Enter(ctx, d.unsavedSize())
	if err != nil {
		return ended{}, false // stopped: the release saves
	}
	defer leave()
	return d.writeDue(ctx, checkpoint.DueSave)
}

// writeInTurn makes the write that is due. Small writes take turns with those of other
// jobs: many that started together would otherwise need a connection each, at the same
// time.
func (d *Delivery) writeInTurn(ctx context.Context, due checkpoint.Due) (end ended, over bool) {
	size := 0
	if due == checkpoint.DueSave {
		size = d.unsavedSize()
	}
	if size <= smallState {
		leave, err := d.runner.smallWrites.Enter(ctx, size)
		if err != nil {
			return ended{}, false // stopped: the release saves
		}
		defer leave()
	}
	return d.writeDue(ctx, due)
}

// callHandler calls the handler, and sets how that ended. A panic is an error like any
// other.
func (d *Delivery) callHandler(ctx context.Context, handler job.Handler, end *ended) {
	defer func() {
		if p := recover(); p != nil {
			d.jobLog.ErrorContext(ctx, "handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			*end = ended{err: fmt.Errorf("%w: %v", errPanicked, p)}
		}
		d.handlerSpan.End(end.err)
	}()
	ctx = d.handlerContext(ctx)
	end.result, end.err = handler.Run(ctx, d.job)
	end.proven = end.err == nil && provesDone(ctx.Err() != nil, end.result, d.job.Latest())
}

// handlerContext returns the context that the handler gets.
func (d *Delivery) handlerContext(ctx context.Context) context.Context {
	return job.WithPrinter(job.WithLogger(d.handlerSpan.In(ctx, d.envelope.Trace), d.jobLog), d.output.Add)
}

// closeJob runs the cleanups of a handler that has returned. They are user code too, so
// a panic is caught.
func (d *Delivery) closeJob(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			d.log.ErrorContext(ctx, "cleanup of a handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	d.job.Close()
}

// waitHandler waits for a handler that was stopped, up to its deadline. What the end of
// the run already holds takes precedence over what the handler returns.
func (d *Delivery) waitHandler(ctx context.Context, r *run) {
	patience, cancel := drain.Outlive(ctx, drain.UntilHandlers)
	defer cancel()
	end := &r.end
	select {
	case <-r.over:
		end.result, end.err, end.proven = r.returned.result, r.returned.err, r.returned.proven
	case <-patience.Done():
		d.log.ErrorContext(ctx, "handler did not return in time; continuing without it", "reason", drain.StopOf(ctx).Reason)
		end.err, end.abandoned, d.abandoned = errAbandoned, true, true
	}
	end.stop = drain.StopOf(ctx)
}

// estimate is how far this job has come since its handler was called.
func (d *Delivery) estimate(begun time.Time) drain.Estimate {
	return drain.Estimate{Begun: begun, From: d.startFraction, To: fractionOf(d.job.Latest(), d.startFraction)}
}

// fractionOf is that of a report, or otherwise where there is none.
func fractionOf(p *job.Progress, otherwise float64) float64 {
	if p == nil {
		return otherwise
	}
	return p.Fraction
}

// leavesForDeparture stops this job alone if it would not be done before the VM goes.
func (d *Delivery) leavesForDeparture(begun time.Time) bool {
	p, now := d.runner.departure.Current(), time.Now()
	if p.MayContinue(d.estimate(begun), now) {
		return false
	}
	d.cancel(drain.ForNotice(p.Notice(now)))
	return true
}

// noticeReport records a report that came since the loop turned last. Looking for it
// here rather than in the handler's call keeps reports cheap; where silence is limited,
// the call records it.
func (d *Delivery) noticeReport() {
	if d.watch.Notice(d.job.Latest()) && d.jobLimits.MaxSilence == 0 {
		d.watch.Reported()
	}
}

// limitsFor returns the limits of the job: of its kind and of its message, the stricter
// of each.
func (d *Delivery) limitsFor(handler job.Handler) job.Limits {
	return job.LimitsOf(handler).Stricter(job.Limits{MaxRun: d.envelope.MaxRun, MaxSilence: d.envelope.MaxSilence})
}

// enforceLimits stops the job as soon as it exceeds one of its limits, also while a save
// is under way. The returned function stops that and waits for it.
func (d *Delivery) enforceLimits(ctx context.Context, limits job.Limits, watch *running.Stopwatch) (end func()) {
	if limits.MaxRun == 0 && limits.MaxSilence == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			ran, silent := d.claim.RunTime(), watch.Silence()
			if reason, err := running.Exceeded(limits, ran, silent); err != nil {
				d.log.WarnContext(ctx, "job exceeds a limit; stopping it", "reason", string(reason), "error", err)
				d.stopJob(reason, err)
				return
			}
			if retry.Sleep(ctx, running.UntilExceeded(limits, ran, silent)) != nil {
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}
