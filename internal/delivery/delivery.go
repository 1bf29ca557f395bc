package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// Delivery is one claimed message on its way to its end. Its parts are its phases, and the
// state that several phases share.
type Delivery struct {
	msg     message
	rules   kindRules
	rec     recorder
	cancels cancelCheck
	plan    movePlan

	unusable   *outcome // of a message that cannot be run; nil for a job
	tracked    bool     // its job is one of the active jobs
	admission  admission
	attempt    *attempt // nil before the handler is called
	settlement settlement

	finished chan struct{} // closed when the outcome is carried out
}

// kindRules are the rules of a job's kind, together with the limits of its message.
type kindRules struct {
	limits  job.Limits
	outputs job.OutputLimits
}

// Open makes the delivery of a message that was claimed. The claim loop calls it, so
// that if two messages have one id, the first one claimed gets to run.
func (r *Runner) Open(lease *queue.Lease) *Delivery {
	d := &Delivery{
		msg:      message{runner: r, lease: lease},
		finished: make(chan struct{}),
	}
	d.join()
	r.Observer.Delivered()
	d.unusable = d.decode()
	subject := []any{"message_id", lease.ID}
	if d.unusable == nil {
		subject = append(subject, "job_id", d.msg.envelope.ID, "kind", d.msg.envelope.Kind)
		d.msg.idLock = r.active.LockFor(d.msg.envelope.ID)
		d.admission.deferFor = r.deferFor(d.msg.envelope.Kind, lease.Queue().Name())
	}
	d.msg.log = r.Log.With(subject...)
	r.active.AddLease(lease)
	return d
}

// join makes the parts of the delivery known to each other.
func (d *Delivery) join() {
	d.rec.msg = &d.msg
	d.cancels.rec = &d.rec
	d.plan.msg, d.plan.rec = &d.msg, &d.rec
	a := &d.admission
	a.acq = acquisition{msg: &d.msg, rec: &d.rec, cancels: &d.cancels, plan: &d.plan}
	a.loader = loader{msg: &d.msg, rec: &d.rec, acq: &a.acq, cancels: &d.cancels, rules: &d.rules}
	a.msg, a.rec, a.plan, a.rules = &d.msg, &d.rec, &d.plan, &d.rules
	d.settlement = settlement{msg: &d.msg, rec: &d.rec, plan: &d.plan, rules: &d.rules}
}

// decode decodes the message. It returns the outcome of a message that cannot be run, and
// nil for a job.
func (d *Delivery) decode() (unusable *outcome) {
	envelope, err := d.msg.lease.TakeEnvelope()
	var invalid *queue.InvalidError
	switch {
	case errors.Is(err, queue.ErrForeign) && d.msg.runner.DefaultKind != "":
		envelope = queue.Foreign(d.msg.lease.Text(), d.msg.lease.ID, d.msg.runner.DefaultKind, d.msg.lease.InsertedAt)
	case errors.Is(err, queue.ErrForeign):
		return &outcome{action: reject, reason: "message is neither an envelope nor plain work for a default kind (--default-kind is not set)"}
	case errors.As(err, &invalid):
		d.msg.envelope.ID = invalid.ID
		return &outcome{action: reject, reason: invalid.Reason}
	}
	d.msg.envelope, d.msg.inputList = envelope, checkpoint.PackInputs(envelope.Inputs)
	d.msg.runner.active.AddJob(envelope.ID)
	d.tracked = true
	return nil
}

// Result says whether a delivery ran its job.
type Result int

// The results.
const (
	Ran     Result = iota // the job was run, or its message was removed
	NotRun                // the message was requeued: others, or this worker later, may run it
	Skipped               // the message was requeued because its kind, or this job, fails on this worker
	Unfit                 // the message was requeued: the state of its job needs another machine
)

// Run takes the message through to its end. ctx ends when work has to stop, and cleanup
// outlives that up to the end of the drain.
func (d *Delivery) Run(ctx, cleanup context.Context) Result {
	ctx = d.begin(ctx, cleanup)
	defer d.end()
	out := d.runJob(ctx)
	d.settle(ctx, out)
	close(d.finished)
	d.msg.runner.logKeeper.Finish()
	d.rec.writeLastLog(ctx)
	d.awaitClosed()
	return out.seen()
}

// begin prepares the delivery, and returns the context that ends with ctx or when this job
// alone is stopped. The caller must call end.
func (d *Delivery) begin(ctx, cleanup context.Context) context.Context {
	d.msg.begin(ctx, cleanup)
	if d.unusable == nil {
		d.msg.beginTrace(d.msg.stoppable)
	}
	return d.msg.stoppable
}

// end ends the renewal, the locks and the contexts of the delivery.
func (d *Delivery) end() {
	d.endTrace()
	d.admission.acq.leaveQuarantine()
	d.msg.stopRenewing()
	d.unlockID()
	if d.tracked {
		d.msg.runner.active.RemoveJob(d.msg.envelope.ID)
	}
	d.msg.free()
	d.rec.accountEnd()
}

// settle carries the outcome out.
func (d *Delivery) settle(ctx context.Context, out *outcome) {
	defer d.settlement.enterGate(ctx, out)()
	d.settlement.settle(ctx, out)
}

// awaitClosed waits until the cleanups of the handler have run, if that has returned.
func (d *Delivery) awaitClosed() {
	if d.attempt == nil || d.attempt.abandoned {
		return
	}
	select {
	case <-d.attempt.closed:
	case <-d.msg.cleanup.Done():
	}
}

// unlockID releases the lock on the job's id. A handler that was abandoned keeps it
// until it returns, abandonedFor at most, so that a worker without others can try
// again.
func (d *Delivery) unlockID() {
	switch {
	case d.msg.idLock == nil:
	case d.attempt != nil && d.attempt.abandoned:
		time.AfterFunc(abandonedFor, d.msg.idLock.Unlock)
	default:
		d.msg.idLock.Unlock()
	}
}

// runJob runs a job, from its message to its outcome.
func (d *Delivery) runJob(ctx context.Context) *outcome {
	if d.unusable != nil {
		return d.unusable
	}
	a, out := d.admission.admit(ctx)
	if out != nil {
		d.admission.leave(ctx, nil)
		return d.admission.unlessLost(ctx, out)
	}
	a.finished, d.attempt = d.finished, a
	end := a.run(ctx)
	out = a.conclude(ctx, end)
	d.admission.leave(ctx, end)
	return out
}

// endTrace ends the span of the delivery. If the job failed, so did the span.
func (d *Delivery) endTrace() {
	if d.msg.span == nil {
		return
	}
	d.msg.span.Set("spotworker.outcome", d.settlement.word)
	if d.rec.claim != nil {
		d.msg.span.Count("spotworker.job.generation", int64(d.rec.claim.Record().Generation))
	}
	var err error
	if d.settlement.failure != "" {
		err = errors.New("job failed: " + d.settlement.failure)
	}
	d.msg.span.End(err)
}
