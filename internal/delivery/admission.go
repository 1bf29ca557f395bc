package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/breaker"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/job"
)

// admission decides whether a job is run here and now, and prepares it. It holds the places
// that the job takes.
type admission struct {
	msg   *message
	rec   *recorder
	plan  *movePlan
	rules *kindRules

	acq       acquisition
	loader    loader
	deferFor  time.Duration // how long to hide a message if others have its kind
	pass      *breakerPass  // nil before the circuit breaker of the kind gave it
	leaveKind func()        // gives back the job's place among the jobs of its kind; nil before it has a place
}

// admit prepares the attempt to run the job, or returns the outcome of a job that is not
// run.
func (a *admission) admit(ctx context.Context) (*attempt, *outcome) {
	handler, out := a.findHandler(ctx)
	if out != nil {
		return nil, out
	}
	a.setRules(handler)
	if a.plan.waits {
		return nil, a.moveWaiting(ctx)
	}
	if out := a.awaitDuplicate(ctx); out != nil {
		return nil, out
	}
	if a.pass, out = enterBreaker(ctx, a.msg); out != nil {
		return nil, out
	}
	if a.leaveKind, out = a.msg.runner.kindLimits.enter(ctx, a.msg.envelope.Kind); out != nil {
		return nil, out
	}
	return a.prepare(ctx, handler)
}

// leave gives back the places that the job took. end is the end of its run, or nil.
func (a *admission) leave(ctx context.Context, end *runEnd) {
	if a.leaveKind != nil {
		a.leaveKind()
	}
	if a.pass == nil {
		return
	}
	verdict, failed := breaker.Inconclusive, false
	if end != nil {
		failed = !job.IsInterrupted(end.err)
		verdict = end.breakerVerdict(a.rec.progressed(), a.rec.failedElsewhere())
	}
	a.pass.leave(ctx, verdict, failed)
}

// unlessLost returns the outcome of a job that is not run. A job that was stopped because
// another worker has its message, before this delivery acquired its record, has nothing to
// release.
func (a *admission) unlessLost(ctx context.Context, out *outcome) *outcome {
	if out.action != interrupted || a.rec.claim != nil || a.msg.lease.Gone() || drain.StopOf(ctx).Reason != job.Lost {
		return out
	}
	return &outcome{action: drop, reason: out.reason}
}

// setRules sets the rules of the job's kind.
func (a *admission) setRules(handler job.Handler) {
	a.rules.limits = a.limitsFor(handler)
	a.rules.outputs, _ = job.OutputLimitsOf(handler)
}

// limitsFor returns the limits of the job: of its kind and of its message, the stricter
// of each.
func (a *admission) limitsFor(handler job.Handler) job.Limits {
	return job.LimitsOf(handler).Stricter(job.Limits{MaxRun: a.msg.envelope.MaxRun, MaxSilence: a.msg.envelope.MaxSilence})
}

// awaitDuplicate waits for the end of another delivery of the job on this worker. It
// returns an outcome if that takes too long.
func (a *admission) awaitDuplicate(ctx context.Context) *outcome {
	if !a.msg.idLock.Wait(ctx, duplicatePatience) {
		return a.acq.duplicate(ctx)
	}
	return nil
}

// duplicate is the outcome of a delivery whose job this worker is running for another
// message: the handler is never started twice at once. If the job is over by now, its
// message is removed.
func (q *acquisition) duplicate(ctx context.Context) *outcome {
	record, ruling, err := q.readRecord(ctx)
	switch {
	case err != nil:
		return stopped(ctx, err)
	case ruling == checkpoint.Create, ruling == checkpoint.Acquire:
		return &outcome{action: putBack, reason: "this worker is running the job already: a duplicate"}
	default:
		return ruled(ruling, record)
	}
}

// prepare acquires the job, unless it has to move, and loads the data for its handler.
func (a *admission) prepare(ctx context.Context, handler job.Handler) (*attempt, *outcome) {
	step := a.msg.span.Step("recover")
	defer step.End(nil)
	attempt, out := a.acquireAndLoad(ctx)
	if out != nil {
		return nil, out
	}
	attempt.handler = handler
	a.msg.envelope = a.msg.lease.ClearPutBack(a.msg.envelope) // it no longer waits
	return attempt, nil
}

// acquireAndLoad is prepare without its trace.
func (a *admission) acquireAndLoad(ctx context.Context) (*attempt, *outcome) {
	if out := a.acq.acquire(ctx); out != nil {
		return nil, out
	}
	if out := a.plan.onClaim(ctx); out != nil {
		return nil, out
	}
	if out := a.loader.fetchInputs(ctx); out != nil {
		return nil, out
	}
	attempt, out := a.loader.load(ctx)
	if out != nil {
		a.loader.releaseInputs()
	}
	return attempt, out
}

// reportStart reports that the handler is about to be called.
func (l *loader) reportStart(record checkpoint.Record, resumed bool) {
	observer := l.msg.runner.Observer
	switch {
	case resumed:
		observer.Started(startedResumed)
	case record.Generation > 1:
		observer.Started(startedAgain)
	default:
		observer.Started(startedFirst)
	}
	switch waited := max(time.Since(l.rec.found.written), 0); {
	case record.Generation <= 1:
		observer.Waited(afterPut, l.msg.sincePut())
	case !l.rec.found.open:
		observer.Waited(afterExit, waited)
	case record.Failures > 0:
		observer.Waited(afterFailure, waited)
	default:
		observer.Waited(afterRelease, waited)
	}
}

// stopped is the outcome of a delivery that was stopped before its handler was called,
// or that storage permanently refuses. err names the call that it waited for.
func stopped(ctx context.Context, err error) *outcome {
	if ctx.Err() == nil && checkpoint.PermanentRefusal(err) != "" {
		return refusedOutcome(err)
	}
	return &outcome{action: interrupted, reason: fmt.Sprintf("%v, before it began: %v", drain.StopOf(ctx), err)}
}
