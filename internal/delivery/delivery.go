package delivery

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/breaker"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/active"
	"github.com/spotworker/spotworker/internal/delivery/lines"
	"github.com/spotworker/spotworker/internal/delivery/running"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/haste"
	"github.com/spotworker/spotworker/internal/inputs"
	"github.com/spotworker/spotworker/internal/joblog"
	"github.com/spotworker/spotworker/internal/outputs"
	"github.com/spotworker/spotworker/internal/pool"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/renewal"
	"github.com/spotworker/spotworker/internal/tracing"
	"github.com/spotworker/spotworker/job"
)

// Delivery is one claimed message on its way to its end.
type Delivery struct {
	runner   *Runner
	account  *account // of the message
	lease    *queue.Lease
	renewal  *renewal.Renewal
	envelope queue.Envelope
	deferFor time.Duration // how long to hide a message whose kind others have
	unusable *outcome      // what to do with a message that cannot be run; nil for a job
	subject  lines.Subject // of log
	log      *slog.Logger
	tracked  bool         // its job is one of the active ones
	idLock   *active.Lock // for starting the id's handler; nil if the message is unusable

	out       outcome // what to do with the message
	passed    bool    // the circuit breaker of the job's kind gave out pass
	pass      breaker.Pass
	leaveKind func()     // gives back the job's place among those of its kind
	run       *run       // of the handler; nil before it is called
	calls     *pool.Pool // for functions that make calls of storage: see finishAside

	// cleanup outlives a stop up to the end of the drain. It is made from that of all jobs.
	cleanup context.Context

	// tries bounds the tries of single calls once all work is stopped. cleanup
	// carries it, and so must every other context that outlives a stop.
	tries *haste.Tries

	// work ends when all work has to stop, and stoppable also when this job alone is
	// stopped: see cancel.
	work, stoppable context.Context
	stop            context.CancelCauseFunc // ends stoppable

	// finished is closed when the delivery is over. closed is closed when its handler
	// has returned and its cleanups have run; it is nil if no handler was called.
	finished, closed chan struct{}
	abandoned        bool // the handler did not return in time

	span          *tracing.Span // of this delivery; nil where no traces are recorded
	handlerSpan   *tracing.Span // of its handler
	tracedOutcome string        // how it ended, for the trace

	claim         *checkpoint.Claim
	job           *job.Job
	jobLog        *slog.Logger       // for the handler: job.Logger
	watch         *running.Stopwatch // of the handler; nil before it is called
	failure       string             // why the job failed; empty if it did not, or never ran
	foundOpen     bool               // the record that was found was open
	output        *joblog.Output     // what the job prints and logs; nil if that is not kept
	recordWritten time.Time          // when the record that was found was last written, by the local clock
	inputs        *inputs.Held       // the job's input files; nil if it names none
	inputList     string             // what its message names as inputs, as the record has it
	restored      *job.Progress      // the state that the handler began with
	saved         *job.Progress      // the state that was recorded last, as far as this delivery knows
	cost          checkpoint.Cost    // of saving this job's state
	jobLimits     job.Limits         // of the job: of its kind and of its message
	outputLimits  job.OutputLimits   // of its kind
	outputs       *outputs.Set       // that the job has sent; nil without a container for them
	idempotent    bool               // the job's kind may leave no record
	keepsPrevious bool               // the job's kind keeps the state before the last one
	steppedBack   bool               // the handler began with that one
	writeFailed   bool               // the last write failed
	startFraction float64            // the fraction done when the handler was called
	quarantined   bool               // this delivery holds the worker's place for a quarantined job
	endRecorded   bool               // the record says how this delivery ended
	leftOut       bool               // the last state could not be recorded
	begun         time.Time          // when it got its slot
	accountedAt   atomic.Int64       // when the ledger was last asked for, in nanoseconds from begun; 0 for never
	cancelChecked time.Time          // cancellations up to here are known not to concern the job
	cancelRetry   time.Time          // the record is not read before, after a read for that failed
	plan          movePlan           // what the release does about the on-demand queue
	moved         bool               // a message on the on-demand queue replaced this one
	replaced      bool               // a new message on the same queue replaced this one
}

// Open makes the delivery of a message that was claimed. The claim loop calls it, so
// that of two messages with one id the first one claimed gets to run.
func (r *Runner) Open(lease *queue.Lease) *Delivery {
	d := &Delivery{
		runner: r, account: r.accounts[lease.Queue().Account()], lease: lease,
		finished: make(chan struct{}), subject: lines.Subject{MessageID: lease.ID},
	}
	r.observer.Delivered()
	d.unusable = d.decode()
	if d.unusable == nil {
		d.subject.JobID, d.subject.Kind = d.envelope.ID, d.envelope.Kind
		d.idLock = r.active.LockFor(d.envelope.ID)
		d.deferFor = r.deferFor(d.envelope.Kind, lease.Queue().Name())
	}
	d.log = slog.New(d.subject.Handler(r.log.Handler()))
	r.active.AddLease(lease)
	return d
}

// Result says whether a delivery ran its job.
type Result int

// The results.
const (
	Ran     Result = iota // the job was run, or its message was removed
	NotRun                // the message was requeued: others, or this worker later, may run it
	Skipped               // the message was requeued because its kind, or this job, fails on this worker
)

// Run takes the message through to its end. ctx ends when work has to stop, and cleanup
// outlives that up to the end of the drain. The last calls of a job that had to wait are
// made in calls.
//
// While its handler runs, the goroutine of a delivery waits: what it has on its stack then
// is held as long as the job takes. So Run, runJob and runHandler have small frames, and
// leave what they need later in fields.
func (d *Delivery) Run(ctx, cleanup context.Context, calls *pool.Pool) Result {
	ctx = d.begin(ctx, cleanup, calls)
	defer d.end()
	d.runJob(ctx)
	d.finishAside(ctx)
	close(d.finished)
	d.account.logs.Finish()
	d.writeLastLog(ctx)
	d.awaitClosed()
	return d.out.action.result()
}

// begin prepares the delivery, and returns the context that ends with ctx or when this job
// alone is stopped. The caller must call end.
func (d *Delivery) begin(ctx, cleanup context.Context, calls *pool.Pool) context.Context {
	d.begun, d.calls, d.work = time.Now(), calls, ctx
	d.tries = d.runner.latency.NewTries(ctx)
	d.cleanup = d.tries.In(cleanup)
	d.stoppable, d.stop = context.WithCancelCause(ctx)
	d.renewal = d.account.renewals.Start(d.stoppable, d.cleanup, d.lease, d.log, d.messageLost)
	d.account.logs.Begin()
	d.beginTrace(d.stoppable)
	return d.stoppable
}

// end frees what the delivery holds.
func (d *Delivery) end() {
	d.endTrace()
	d.leaveQuarantine()
	d.stopRenewing()
	d.unlockID()
	if d.tracked {
		d.runner.active.RemoveJob(d.envelope.ID)
	}
	d.free()
	d.accountEnd()
}

// finishAside is finish. That of a job that ran for a while, or has to stop, takes place in
// a goroutine of calls, whose stack is deep enough for calls of storage already: those of
// the goroutines that wait for handlers have become small.
func (d *Delivery) finishAside(ctx context.Context) {
	if d.watch == nil || ctx.Err() == nil && d.watch.Elapsed() < asideAfter {
		d.finish(ctx, d.out)
		return
	}
	leave := d.enterGate(ctx, d.out)
	d.aside(func() {
		defer leave()
		d.finishInTurn(ctx, d.out)
	})
}

// asideAfter is how long a job runs before its goroutine's stack may have become small.
const asideAfter = time.Second

// aside calls a function in a goroutine of the pool for calls, and waits for it.
func (d *Delivery) aside(f func()) {
	done := make(chan struct{})
	d.calls.Go(func() {
		defer close(done)
		f()
	})
	<-done
}

// awaitClosed waits until the cleanups of the handler have run, if that has returned.
func (d *Delivery) awaitClosed() {
	if d.closed == nil || d.abandoned {
		return
	}
	select {
	case <-d.closed:
	case <-d.cleanup.Done():
	}
}

// unlockID releases the lock on the job's id. A handler that was abandoned keeps it
// until it returns, abandonedFor at most, so that a worker without others can try
// again.
func (d *Delivery) unlockID() {
	switch {
	case d.idLock == nil:
	case d.abandoned:
		time.AfterFunc(abandonedFor, d.idLock.Unlock)
	default:
		d.idLock.Unlock()
	}
}

// runJob runs a job, from its message to the decision what to do with it.
func (d *Delivery) runJob(ctx context.Context) {
	defer d.leave(ctx)
	if handler := d.ready(ctx); handler != nil {
		d.runHandler(ctx, handler)
		d.afterHandler(ctx)
	}
}

// ready prepares everything for the call of the handler, which it returns. Without it
// d.out says what to do with the message.
func (d *Delivery) ready(ctx context.Context) job.Handler {
	if d.unusable != nil {
		d.out = *d.unusable
		return nil
	}
	handler := d.handler(ctx)
	if handler == nil || !d.awaitDuplicate(ctx) || !d.enterBreaker(ctx) || !d.enterKind(ctx) || !d.prepare(ctx) {
		return nil
	}
	return handler
}

// leave gives back what the job took to be ready.
func (d *Delivery) leave(ctx context.Context) {
	if d.leaveKind != nil {
		d.leaveKind()
	}
	if d.passed {
		d.leaveBreaker(ctx)
	}
}

// handler returns the handler of the job's kind, nil if the job is not to be run here.
func (d *Delivery) handler(ctx context.Context) job.Handler {
	handler, out, ok := d.findHandler(ctx)
	if !ok {
		d.out = out
		return nil
	}
	d.jobLimits, d.idempotent, d.keepsPrevious = d.limitsFor(handler), job.IsIdempotent(handler), job.KeepsPreviousState(handler)
	d.outputLimits, _ = job.OutputLimitsOf(handler)
	return handler
}

// awaitDuplicate waits for the end of another delivery of the job on this worker. It
// returns false if that takes too long.
func (d *Delivery) awaitDuplicate(ctx context.Context) bool {
	if !d.idLock.Wait(ctx, duplicatePatience) {
		d.out = d.duplicate(ctx)
		return false
	}
	return true
}

// enterKind waits until the job's kind has room for one more. It returns false if that
// takes too long.
func (d *Delivery) enterKind(ctx context.Context) (ok bool) {
	d.leaveKind, d.out, ok = d.runner.kindLimits.enter(ctx, d.envelope.Kind)
	return ok
}

// prepare recovers the job, unless it has to move, and loads what its handler needs. It
// returns false if the handler is not to be called.
func (d *Delivery) prepare(ctx context.Context) (ok bool) {
	step := d.span.Step("recover")
	defer step.End(nil)
	if d.out, ok = d.recoverAndLoad(ctx); ok {
		d.envelope = d.lease.ClearPutBack(d.envelope) // it is not waiting any more
	}
	return ok
}

// recoverAndLoad is prepare without its trace.
func (d *Delivery) recoverAndLoad(ctx context.Context) (outcome, bool) {
	if out, ok := d.recover(ctx); !ok {
		return out, false
	}
	if out, moves := d.moveAtClaim(); moves {
		return out, false
	}
	if out, ok := d.fetchInputs(ctx); !ok {
		return out, false
	}
	out, ok := d.load(ctx)
	if !ok {
		d.releaseInputs()
	}
	return out, ok
}

// afterHandler decides what the end of the handler means.
func (d *Delivery) afterHandler(ctx context.Context) {
	d.claim.CloseReaders() // the handler has returned, or was abandoned
	end := &d.run.end
	if end.failed() {
		*end = d.saveStream(ctx, *end)
	}
	d.recordMachine(*end)
	d.runner.observer.Returned()
	d.failure = end.failureClass()
	d.out = decide(*end, d.claim.After(d.snapshot()), d.jobLimits)
}

// beginTrace begins the span of the delivery. A message that is no job has none.
func (d *Delivery) beginTrace(ctx context.Context) {
	if d.runner.tracer == nil || d.unusable != nil {
		return
	}
	d.span = d.runner.tracer.Process(ctx, tracing.Message{
		Trace: d.envelope.Trace, Queue: d.lease.Queue().Name(), MessageID: d.lease.ID, JobID: d.envelope.ID, Kind: d.envelope.Kind,
		Attempt: int(d.lease.Deliveries), Since: d.begun,
	})
	d.span.Set("spotworker.worker", d.runner.owner)
}

// endTrace ends the span of the delivery. A job that failed makes it one that failed.
func (d *Delivery) endTrace() {
	if d.span == nil {
		return
	}
	d.span.Set("spotworker.outcome", d.tracedOutcome)
	if d.claim != nil {
		d.span.Count("spotworker.job.generation", int64(d.claim.Record().Generation))
	}
	var err error
	if d.failure != "" {
		err = errors.New("job failed: " + d.failure)
	}
	d.span.End(err)
}

// decode decodes the message. It returns what to do with one that cannot be run, and
// nil for a job.
func (d *Delivery) decode() (unusable *outcome) {
	envelope, err := d.lease.TakeEnvelope()
	var invalid *queue.InvalidError
	switch {
	case errors.Is(err, queue.ErrForeign) && d.runner.defaultKind != "":
		envelope = queue.Foreign(d.lease.Text(), d.lease.ID, d.runner.defaultKind, d.lease.InsertedAt)
	case errors.Is(err, queue.ErrForeign):
		return &outcome{action: reject, reason: "message is neither an envelope nor plain work for a default kind (--default-kind is not set)"}
	case errors.As(err, &invalid):
		d.envelope.ID = invalid.ID
		return &outcome{action: reject, reason: invalid.Reason}
	}
	d.envelope, d.inputList = envelope, checkpoint.PackInputs(envelope.Inputs)
	d.runner.active.AddJob(envelope.ID)
	d.tracked = true
	return nil
}

// ref is this delivery as the rules of the record see it.
func (d *Delivery) ref() checkpoint.Delivery {
	return checkpoint.Delivery{
		ID: d.envelope.ID, Kind: d.envelope.Kind,
		PayloadHash: d.envelope.Work(), MessageID: d.lease.ID,
		Deadline: d.envelope.Deadline, Estimate: d.envelope.Estimate,
		Steady: d.runner.uptime() >= steadyFor, InputList: d.inputList,
	}
}

// messageLost stops the job because another worker has its message.
func (d *Delivery) messageLost(err error) {
	d.log.Warn("message lost; stopping the job", "error", err)
	d.stopJob(job.Lost, err)
}

// cancel stops this job alone; it does nothing if the job is stopped already. The job's own
// drain is added to the worker's, so that an eviction shortens it.
func (d *Delivery) cancel(own *drain.Drain) {
	d.runner.drains.Add(own)
	if d.stop(own); drain.Of(d.stoppable) != own {
		d.runner.drains.Remove(own) // it came too late
	}
}

// free frees the context of the job, and removes its own drain.
func (d *Delivery) free() {
	d.stop(nil)
	if own := drain.Of(d.stoppable); own != nil && own != drain.Of(d.work) {
		d.runner.drains.Remove(own)
	}
}

// stopRenewing stops the renewals and waits for the one under way. It comes before
// the last call for the message.
func (d *Delivery) stopRenewing() {
	d.runner.active.RemoveLease(d.lease)
	d.renewal.Stop()
}

// stopJob stops this job alone.
func (d *Delivery) stopJob(reason job.Reason, err error) {
	d.cancel(drain.ForJob(reason, err, time.Now()))
}
