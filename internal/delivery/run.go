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
	"github.com/spotworker/spotworker/internal/telemetry/observe"
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
	ended
	entry      *running.Job // among the running jobs
	since      time.Time    // when the handler was called
	tried      time.Time    // when a write was tried last
	stopLimits func()

	over     chan struct{} // closed when the handler has returned
	returned runEnd        // the result and the error of the handler; set before over is closed
}

// ended is a job whose handler has returned, or was abandoned.
type ended struct {
	*loaded
	runEnd
	abandoned bool          // the handler did not return in time
	settled   chan struct{} // to be closed when the outcome is carried out
	closed    chan struct{} // closed then, when the cleanups of the handler have run
}

// run calls the handler and records its progress until it returns, or until it
// was stopped and its deadline has passed.
func (l *loaded) run(ctx context.Context) *ended {
	a := &attempt{ended: ended{loaded: l, settled: make(chan struct{}), closed: make(chan struct{})}, over: make(chan struct{})}
	a.start(ctx)
	defer a.free()
	a.runEnd, a.abandoned = a.untilEnd(ctx)
	return &a.ended
}

// untilEnd serves the running job until its end.
func (a *attempt) untilEnd(ctx context.Context) (end runEnd, abandoned bool) {
	timer := time.NewTimer(recheckEvery)
	defer timer.Stop()
	for {
		wait, end := a.attend(ctx)
		if end != nil {
			return a.await(ctx, *end)
		}
		timer.Reset(wait)
		select {
		case <-a.over:
			end := a.returned
			end.stop = job.StopOf(ctx)
			return end, false
		case <-ctx.Done():
			return a.await(ctx, runEnd{})
		case <-a.entry.Woken():
		case <-timer.C:
		}
	}
}

// start calls the handler in a goroutine of its own.
func (a *attempt) start(ctx context.Context) {
	a.job.OnReport(func(p *job.Progress) {
		a.watch.Stamp(p)
		if a.kind.limits.MaxSilence > 0 {
			a.watch.Reported()
		}
	})
	a.stopLimits = a.enforceLimits(ctx, a.kind.limits, a.watch)
	go a.callAndClose(ctx)
	a.entry, a.since = a.env.running.Add(a.envelope.Kind, a.watch, a.show), time.Now()
}

// show says how far the job is, for the worker's heartbeat. The heartbeat has the end of the
// job's log only if the record does not have it yet.
func (a *attempt) show() presence.Running {
	record, latest := a.claim.Record(), a.job.Latest()
	shown := presence.Running{
		ID: a.envelope.ID, Generation: record.Generation, RunTime: a.runTime(), Ran: a.watch.Elapsed(),
		From: a.startFraction, Fraction: fractionOf(latest, a.startFraction), HandOver: time.Duration(a.handOver.Load()),
	}
	if latest != nil {
		shown.Text = latest.Text
	}
	if a.output != nil {
		if end := a.output.Tail(); end != record.Log {
			shown.Log = []byte(end)
		}
	}
	return shown
}

// callAndClose calls the handler, and its cleanups when the job has been dealt with.
func (a *attempt) callAndClose(ctx context.Context) {
	defer close(a.closed)
	defer a.idLock.Unlock()
	a.call(ctx)
	a.watch.Stop()
	close(a.over)
	<-a.settled
	a.close(ctx)
}

// free ends the run among the running jobs, and the watch of its limits.
func (a *attempt) free() {
	a.entry.Remove()
	a.stopLimits()
}

// attend serves a running job: it makes the write that is due, and checks for a cancel and for
// the departure of the VM. It returns how long to wait for the next round, or the end of a run
// that is over.
func (a *attempt) attend(ctx context.Context) (wait time.Duration, end *runEnd) {
	for {
		a.noticeReport()
		if conflict := a.checkCancelled(ctx); conflict != nil {
			a.stopForConflict(ctx, conflict)
			return 0, &runEnd{conflict: conflict}
		}
		if a.env.Departure.Closed() && a.leavesForDeparture(a.since) {
			return 0, &runEnd{}
		}
		due, wait := a.env.Policy.Next(a.situation(a.since, a.tried), time.Now())
		requests := a.entry.TakeRequests()
		if due == checkpoint.Nothing && (len(requests) == 0 || !a.changed()) {
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
func (e *ended) conclude(ctx context.Context) *outcome {
	e.claim.CloseReaders() // the handler has returned, or was abandoned
	if e.failed() {
		e.saveStream(ctx, &e.runEnd)
	}
	blame := e.failureOf(&e.runEnd)
	e.env.Observe(observe.Returned{})
	out := outcomeOfRun(&e.runEnd, e.claim.After(e.snapshot(), blame.Repeat), e.kind.limits)
	out.own, out.run, out.blame = e.owned, e, blame
	return out
}

// awaitClosed waits until the cleanups of the handler have run, if that has returned.
func (e *ended) awaitClosed() {
	if e.abandoned {
		return
	}
	select {
	case <-e.closed:
	case <-e.cleanup.Done():
	}
}

// writeAndAnswer makes the write that is due, and answers the save requests. If there
// are some and the state is not recorded yet, the write is a save, which waits at the
// gate for its turn among the other jobs.
func (a *attempt) writeAndAnswer(ctx context.Context, requests []*running.SaveRequest, due checkpoint.Due) *runEnd {
	if len(requests) == 0 || !a.changed() {
		defer running.Answer(requests, true)
		return a.writeInTurn(ctx, due)
	}
	before := a.saved
	defer func() { running.Answer(requests, a.saved != before) }()
	leave, err := a.env.gate.Enter(ctx, a.unsavedSize())
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
		size = a.unsavedSize()
	}
	if size <= smallState {
		leave, err := a.env.smallWrites.Enter(ctx, size)
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
	latest := a.job.Latest()
	if fault := tooLarge(latest); fault != nil {
		a.stopJob(job.Faulty, fault)
		return &runEnd{fault: fault}
	}
	work := ctx
	ctx, cancel := drain.Outlive(work, drain.UntilHandlers)
	defer cancel()
	begun := time.Now()
	err := a.writeRecord(a.tries.In(ctx), due, latest)
	a.writeFailed = err != nil
	switch conflict := asConflict(err); {
	case conflict != nil:
		a.stopForConflict(ctx, conflict)
		return &runEnd{conflict: conflict}
	case errors.Is(err, checkpoint.ErrTooLarge):
		a.stopJob(job.Faulty, err)
		return &runEnd{fault: err}
	case errors.Is(err, checkpoint.ErrReading):
		a.log.DebugContext(ctx, "checkpoint put off: the handler is still reading the one before")
		end := a.writeDue(ctx, checkpoint.DueTouch) // so that a long read does not look like an unclean exit
		a.writeFailed = true
		return end
	case job.IsPermanent(err): // of the job's outputs
		a.stopJob(job.Faulty, err)
		return &runEnd{fault: err}
	case err != nil:
		a.log.Log(ctx, outage.Level(err, slog.LevelWarn), "checkpoint not saved; the one before stands", "error", err)
	case due == checkpoint.DueSave:
		a.noteSave(ctx, latest, begun)
	}
	if err == nil { // what the record has no room for; neither the next save nor a stop waits for that
		a.output.WriteSoon(work, logTimeout, func(err error) { a.reportLog(work, err) })
	}
	return nil
}

// noteSave records a save that took effect. It warns once if a hand-over would take too long.
func (a *attempt) noteSave(ctx context.Context, latest *job.Progress, begun time.Time) {
	a.saved = latest
	a.watch.Saved()
	took := time.Since(begun)
	handOver, before := a.timed(took)
	size := a.claim.Record().StateSize
	next := a.env.Policy.IntervalFor(a.situation(begun, begun))
	a.log.DebugContext(ctx, "checkpoint saved", "bytes", size, "fraction", fractionOf(latest, 0), "took", took, "interval", next)
	if checkpoint.OutlastsNotice(handOver) && !checkpoint.OutlastsNotice(before) {
		a.log.WarnContext(ctx, "a checkpoint takes longer to save than an eviction leaves for it: the one before would stand", "bytes", size,
			"took", handOver)
	}
}

// call calls the handler, and sets returned. A panic is an error like any other.
func (a *attempt) call(ctx context.Context) {
	end := &a.returned
	defer func() {
		if p := recover(); p != nil {
			a.lines.ErrorContext(ctx, "handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			*end = runEnd{err: fmt.Errorf("%w: %v", errPanicked, p)}
		}
		a.trace.End(end.err)
	}()
	ctx = job.WithPrinter(job.WithLogger(a.trace.In(ctx, a.envelope.Trace), a.lines), a.output.Add)
	end.result, end.err = a.kind.handler.Run(ctx, a.job.Job)
	end.proven = provesDone(ctx.Err() != nil, end.result, a.job.Latest())
}

// close runs the cleanups of a handler that has returned. They are user code too, so
// a panic is caught.
func (a *attempt) close(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			a.log.ErrorContext(ctx, "cleanup of a handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	a.job.Close()
}

// await waits for a handler that was stopped, up to its deadline, and completes end. What end
// already holds takes precedence over the handler's return values.
func (a *attempt) await(ctx context.Context, end runEnd) (_ runEnd, abandoned bool) {
	patience, cancel := drain.Outlive(ctx, drain.UntilHandlers)
	defer cancel()
	select {
	case <-a.over:
		end.result, end.err, end.proven = a.returned.result, a.returned.err, a.returned.proven
	case <-patience.Done():
		a.log.ErrorContext(ctx, "handler did not return in time; continuing without it", "reason", drain.StopOf(ctx).Reason)
		end.err, abandoned = errAbandoned, true
		a.watch.Stop()
	}
	end.stop = drain.StopOf(ctx)
	return end, abandoned
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
	p, now := a.env.Departure.Current(), time.Now()
	done := drain.Estimate{Begun: begun, From: a.startFraction, To: fractionOf(a.job.Latest(), a.startFraction)}
	if p.MayContinue(done, now) {
		return false
	}
	a.cancel(drain.ForNotice(p.Notice(now)))
	return true
}

// noticeReport records a report that came since the loop turned last. Looking for it
// here rather than in the handler's call keeps reports cheap; where silence is limited,
// the call records it.
func (a *attempt) noticeReport() {
	if a.watch.Notice(a.job.Latest()) && a.kind.limits.MaxSilence == 0 {
		a.watch.Reported()
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
			ran, silent := a.runTime(), watch.Silence()
			if reason, err := running.Exceeded(limits, ran, silent); err != nil {
				a.log.WarnContext(ctx, "job exceeds a limit; stopping it", "reason", string(reason), "error", err)
				a.stopJob(reason, err)
				return
			}
			if retry.Sleep(ctx, running.UntilExceeded(limits, ran, silent)) != nil {
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}
