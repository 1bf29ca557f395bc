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
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/telemetry/tracing"
	"github.com/spotworker/spotworker/job"
)

// recheckEvery is how often a running job's estimate is checked once claiming has
// ended.
const recheckEvery = 5 * time.Second

// errAbandoned is the error of a handler that did not return in time.
var errAbandoned = errors.New("handler did not return in time")

// errPanicked is the error of a handler that panicked.
var errPanicked = errors.New("handler panicked")

// attempt is one run of a job's handler.
type attempt struct {
	msg     *message
	rec     *recorder
	cancels *cancelCheck
	rules   *kindRules
	handler job.Handler
	span    *tracing.Span // of the handler
	log     *slog.Logger  // for the handler: job.Logger

	running    *running.Job
	since      time.Time // when the handler was called
	tried      time.Time // when a write was tried last
	stopLimits func()

	over      chan struct{}   // closed when the handler has returned
	returned  runEnd          // the result and the error of the handler; set before over is closed
	abandoned bool            // the handler did not return in time
	finished  <-chan struct{} // closed when the outcome is carried out
	closed    chan struct{}   // closed when the cleanups of the handler have run
}

// run calls the handler and records its progress until it returns, or until it
// was stopped and its deadline has passed. It returns how the run ended.
func (a *attempt) run(ctx context.Context) *runEnd {
	a.start(ctx)
	defer a.free()
	timer := time.NewTimer(recheckEvery)
	defer timer.Stop()
	for {
		wait, end := a.attend(ctx)
		if end != nil {
			a.await(ctx, end)
			return end
		}
		timer.Reset(wait)
		select {
		case <-a.over:
			return a.returnedWith(job.StopOf(ctx))
		case <-ctx.Done():
			end := &runEnd{}
			a.await(ctx, end)
			return end
		case <-a.running.Woken():
		case <-timer.C:
		}
	}
}

// returnedWith returns the end of the run after the handler has returned. stop is the reason
// why the job was stopped; nil if it was not.
func (a *attempt) returnedWith(stop *job.Stop) *runEnd {
	end := a.returned
	end.stop = stop
	return &end
}

// start calls the handler in a goroutine of its own.
func (a *attempt) start(ctx context.Context) {
	watch := a.msg.runner.running.Start(a.rec.job.Latest())
	a.rec.known.charged = a.rec.claim.Record().Charge
	a.closed, a.rec.watch = make(chan struct{}), watch
	a.rec.startFraction = fractionOf(a.rec.saved, 0)
	a.rec.job.OnReport(func(p *job.Progress) {
		watch.Stamp(p)
		if a.rules.limits.MaxSilence > 0 {
			watch.Reported()
		}
	})
	a.over, a.stopLimits = make(chan struct{}), a.enforceLimits(ctx, a.rules.limits, watch)
	go a.callAndClose(ctx)
	a.running, a.since = a.msg.runner.running.Add(a.msg.envelope.Kind, watch, a.show), time.Now()
}

// show says how far the job is, for the worker's heartbeat. The heartbeat has the end of the
// job's log only if the record does not have it yet.
func (a *attempt) show() presence.Running {
	record, latest := a.rec.claim.Record(), a.rec.job.Latest()
	shown := presence.Running{
		ID: a.msg.envelope.ID, Generation: record.Generation, RunTime: a.rec.runTime(), Ran: a.rec.watch.Elapsed(),
		From: a.rec.startFraction, Fraction: fractionOf(latest, a.rec.startFraction), HandOver: time.Duration(a.rec.handOver.Load()),
	}
	if latest != nil {
		shown.Text = latest.Text
	}
	if a.rec.output != nil {
		if end := a.rec.output.Tail(); end != record.Log {
			shown.Log = []byte(end)
		}
	}
	return shown
}

// callAndClose calls the handler, and its cleanups when the job has been dealt with.
func (a *attempt) callAndClose(ctx context.Context) {
	defer close(a.closed)
	defer a.msg.idLock.Unlock()
	a.call(ctx)
	a.rec.watch.Stop()
	close(a.over)
	<-a.finished
	a.close(ctx)
}

// free ends the run among the running jobs, and the watch of its limits.
func (a *attempt) free() {
	a.running.Remove()
	a.stopLimits()
}

// attend serves a running job: it makes the write that is due, and checks for a cancel and for
// the departure of the VM. It returns how long to wait for the next round, or the end of a run
// that is over.
func (a *attempt) attend(ctx context.Context) (wait time.Duration, end *runEnd) {
	for {
		a.noticeReport()
		if conflict := a.cancels.check(ctx); conflict != nil {
			return 0, &runEnd{conflict: conflict}
		}
		if a.msg.runner.Departure.Closed() && a.leavesForDeparture(a.since) {
			return 0, &runEnd{}
		}
		due, wait := a.msg.runner.Policy.Next(a.rec.situation(a.since, a.tried), time.Now())
		requests := a.running.TakeRequests()
		if due == checkpoint.Nothing && (len(requests) == 0 || !a.rec.changed()) {
			running.Answer(requests, true)
			return min(wait, recheckEvery), nil
		}
		if end := a.writeAndAnswer(ctx, requests, due); end != nil {
			return 0, end
		}
		a.tried = time.Now() // after it, so that a long save is followed by work
	}
}

// conclude returns the outcome of a run.
func (a *attempt) conclude(ctx context.Context, end *runEnd) *outcome {
	a.rec.claim.CloseReaders() // the handler has returned, or was abandoned
	if end.failed() {
		a.rec.saveStream(ctx, end)
	}
	a.rec.recordMachine(end)
	a.msg.runner.Observer.Returned()
	return outcomeOfRun(end, a.rec.after(a.rec.snapshot()), a.rules.limits)
}

// writeAndAnswer makes the write that is due, and answers the save requests. If there
// are some and the state is not recorded yet, the write is a save, which waits at the
// gate for its turn among the other jobs.
func (a *attempt) writeAndAnswer(ctx context.Context, requests []*running.SaveRequest, due checkpoint.Due) *runEnd {
	if len(requests) == 0 || !a.rec.changed() {
		defer running.Answer(requests, true)
		return a.writeInTurn(ctx, due)
	}
	before := a.rec.saved
	defer func() { running.Answer(requests, a.rec.saved != before) }()
	leave, err := a.msg.runner.gate.Enter(ctx, a.rec.unsavedSize())
	if err != nil {
		return nil // stopped: the release saves
	}
	defer leave()
	return a.writeDue(ctx, checkpoint.DueSave)
}

// writeInTurn makes the write that is due. The small writes of all jobs take turns: many jobs
// that started together would otherwise need a connection each, at the same time.
func (a *attempt) writeInTurn(ctx context.Context, due checkpoint.Due) *runEnd {
	size := 0
	if due == checkpoint.DueSave {
		size = a.rec.unsavedSize()
	}
	if size <= smallState {
		leave, err := a.msg.runner.smallWrites.Enter(ctx, size)
		if err != nil {
			return nil // stopped: the release saves
		}
		defer leave()
	}
	return a.writeDue(ctx, due)
}

// writeDue makes the write that is due. It returns the end of the run if another delivery owns
// the record, or if the state cannot be recorded; nil otherwise.
func (a *attempt) writeDue(ctx context.Context, due checkpoint.Due) *runEnd {
	latest := a.rec.job.Latest()
	if fault := tooLarge(latest); fault != nil {
		a.msg.stopJob(job.Faulty, fault)
		return &runEnd{fault: fault}
	}
	work := ctx
	ctx, cancel := drain.Outlive(work, drain.UntilHandlers)
	defer cancel()
	begun := time.Now()
	err := a.rec.writeRecord(a.msg.tries.In(ctx), due, latest)
	a.rec.writeFailed = err != nil
	switch conflict := asConflict(err); {
	case conflict != nil:
		a.rec.stopForConflict(ctx, conflict)
		return &runEnd{conflict: conflict}
	case errors.Is(err, checkpoint.ErrTooLarge):
		a.msg.stopJob(job.Faulty, err)
		return &runEnd{fault: err}
	case errors.Is(err, checkpoint.ErrReading):
		a.msg.log.DebugContext(ctx, "checkpoint put off: the handler is still reading the one before")
		end := a.writeDue(ctx, checkpoint.DueTouch) // so that a long read does not look like an unclean exit
		a.rec.writeFailed = true
		return end
	case job.IsPermanent(err): // of the job's outputs
		a.msg.stopJob(job.Faulty, err)
		return &runEnd{fault: err}
	case err != nil:
		a.msg.log.Log(ctx, outage.Level(err, slog.LevelWarn), "checkpoint not saved; the one before stands", "error", err)
	case due == checkpoint.DueSave:
		a.saved(ctx, latest, begun)
	}
	if err == nil {
		a.rec.writeLog(work)
	}
	return nil
}

// saved records a save that took effect. It warns once if a hand-over would take too long.
func (a *attempt) saved(ctx context.Context, latest *job.Progress, begun time.Time) {
	a.rec.saved = latest
	a.rec.watch.Saved()
	took := time.Since(begun)
	handOver, before := a.rec.timed(took)
	size := a.rec.claim.Record().StateSize
	next := a.msg.runner.Policy.IntervalFor(a.rec.situation(begun, begun))
	a.msg.log.DebugContext(ctx, "checkpoint saved", "bytes", size, "fraction", fractionOf(latest, 0), "took", took, "interval", next)
	if checkpoint.OutlastsNotice(handOver) && !checkpoint.OutlastsNotice(before) {
		a.msg.log.WarnContext(ctx, "a checkpoint takes longer to save than an eviction leaves for it: the one before would stand", "bytes", size,
			"took", handOver)
	}
}

// call calls the handler, and sets returned. A panic is an error like any other.
func (a *attempt) call(ctx context.Context) {
	end := &a.returned
	defer func() {
		if p := recover(); p != nil {
			a.log.ErrorContext(ctx, "handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			*end = runEnd{err: fmt.Errorf("%w: %v", errPanicked, p)}
		}
		a.span.End(end.err)
	}()
	ctx = a.handlerContext(ctx)
	end.result, end.err = a.handler.Run(ctx, a.rec.job.Job)
	end.proven = provesDone(ctx.Err() != nil, end.result, a.rec.job.Latest())
}

// handlerContext returns the context that the handler gets.
func (a *attempt) handlerContext(ctx context.Context) context.Context {
	return job.WithPrinter(job.WithLogger(a.span.In(ctx, a.msg.envelope.Trace), a.log), a.rec.output.Add)
}

// close runs the cleanups of a handler that has returned. They are user code too, so
// a panic is caught.
func (a *attempt) close(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			a.msg.log.ErrorContext(ctx, "cleanup of a handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	a.rec.job.Close()
}

// await waits for a handler that was stopped, up to its deadline, and completes end. What end
// already holds takes precedence over the handler's return values.
func (a *attempt) await(ctx context.Context, end *runEnd) {
	patience, cancel := drain.Outlive(ctx, drain.UntilHandlers)
	defer cancel()
	select {
	case <-a.over:
		end.result, end.err, end.proven = a.returned.result, a.returned.err, a.returned.proven
	case <-patience.Done():
		a.msg.log.ErrorContext(ctx, "handler did not return in time; continuing without it", "reason", drain.StopOf(ctx).Reason)
		end.err, a.abandoned = errAbandoned, true
		a.rec.watch.Stop()
	}
	end.stop = drain.StopOf(ctx)
}

// estimate is how far this job has come since its handler was called.
func (a *attempt) estimate(begun time.Time) drain.Estimate {
	return drain.Estimate{Begun: begun, From: a.rec.startFraction, To: fractionOf(a.rec.job.Latest(), a.rec.startFraction)}
}

// fractionOf returns p.Fraction, or fallback if p is nil.
func fractionOf(p *job.Progress, fallback float64) float64 {
	if p == nil {
		return fallback
	}
	return p.Fraction
}

// leavesForDeparture stops this job alone if it would not be done before the VM goes.
func (a *attempt) leavesForDeparture(begun time.Time) bool {
	p, now := a.msg.runner.Departure.Current(), time.Now()
	if p.MayContinue(a.estimate(begun), now) {
		return false
	}
	a.msg.cancel(drain.ForNotice(p.Notice(now)))
	return true
}

// noticeReport records a report that came since the loop turned last. Looking for it
// here rather than in the handler's call keeps reports cheap; where silence is limited,
// the call records it.
func (a *attempt) noticeReport() {
	if a.rec.watch.Notice(a.rec.job.Latest()) && a.rules.limits.MaxSilence == 0 {
		a.rec.watch.Reported()
	}
}

// enforceLimits stops the job as soon as it exceeds one of its limits, also while a save
// is under way. The returned function stops that and waits for it.
func (a *attempt) enforceLimits(ctx context.Context, limits job.Limits, watch *running.Stopwatch) (end func()) {
	if limits.MaxRun == 0 && limits.MaxSilence == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			ran, silent := a.rec.runTime(), watch.Silence()
			if reason, err := running.Exceeded(limits, ran, silent); err != nil {
				a.msg.log.WarnContext(ctx, "job exceeds a limit; stopping it", "reason", string(reason), "error", err)
				a.msg.stopJob(reason, err)
				return
			}
			if retry.Sleep(ctx, running.UntilExceeded(limits, ran, silent)) != nil {
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}
