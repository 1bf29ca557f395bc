package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/job"
)

// Delivery is one claimed message on its way to its end.
type Delivery struct {
	claimed
	unusable *outcome // of a message that cannot be run; nil for a job
}

// Open makes the delivery of a message that was claimed. The claim loop calls it, so
// that if two messages have one id, the first one claimed gets to run.
func (r *Runner) Open(lease *queue.Lease) *Delivery {
	d := &Delivery{claimed: claimed{env: r, lease: lease}}
	r.Observe(observe.Delivered{})
	d.unusable = d.decode()
	subject := []any{"message_id", lease.ID}
	if d.unusable == nil {
		subject = append(subject, "job_id", d.envelope.ID, "kind", d.envelope.Kind)
		r.active.AddJob(d.envelope.ID)
		d.idLock = r.active.LockFor(d.envelope.ID)
	}
	d.log = r.Log.With(subject...)
	r.active.AddLease(lease)
	return d
}

// OpenWaiting makes the delivery of a message that no worker claimed, and that
// [Runner.AtRisk] returned. It moves the job, unless the job is no longer at risk.
func (r *Runner) OpenWaiting(lease *queue.Lease) *Delivery {
	d := r.Open(lease)
	d.unclaimed = true
	return d
}

// decode decodes the message. It returns the outcome of a message that cannot be run, and
// nil for a job.
func (d *Delivery) decode() (unusable *outcome) {
	envelope, err := d.lease.TakeEnvelope()
	var invalid *queue.InvalidError
	switch {
	case errors.Is(err, queue.ErrForeign) && d.env.DefaultKind != "":
		envelope = queue.Foreign(d.lease.Text(), d.lease.ID, d.env.DefaultKind, d.lease.InsertedAt)
	case errors.Is(err, queue.ErrForeign):
		return &outcome{action: reject, reason: "message is neither an envelope nor plain work for a default kind (--default-kind is not set)"}
	case errors.As(err, &invalid):
		d.envelope.ID = invalid.ID
		return &outcome{action: reject, reason: invalid.Reason}
	}
	d.envelope, d.inputList, d.kind = envelope, checkpoint.PackInputs(envelope.Inputs), d.env.kindOf(envelope)
	return nil
}

// Result says whether a delivery ran its job.
type Result int

// The results.
const (
	Ran     Result = iota // the job was run, or its message was removed
	NotRun                // the message waits: others, or this worker later, may run it
	Skipped               // the message waits because its kind is paused, fails here or has slots elsewhere, or this job fails here
	Unfit                 // the message waits: the state of its job needs another machine
)

// Run takes the message through to its end. ctx ends when work has to stop, and cleanup
// outlives that up to the end of the drain.
func (d *Delivery) Run(ctx, cleanup context.Context) Result {
	c := &d.claimed
	c.begin(ctx, cleanup)
	out := d.unusable
	if out == nil {
		out = c.runJob(c.stoppable)
	}
	word := settle(c.stoppable, c, out)
	if out.run != nil {
		close(out.run.settled)
	}
	c.env.logKeeper.Finish()
	if out.run != nil {
		out.run.writeLastLog(c.stoppable)
		out.run.awaitClosed()
	}
	c.end(out, word)
	return out.seen()
}

// runJob runs a job, from its message to its outcome.
func (c *claimed) runJob(ctx context.Context) *outcome {
	if out := c.eligible(ctx, nil); out != nil {
		if out.action != wait {
			_, out = c.lookupAndOwn(ctx)
		}
		return c.unlessLost(ctx, out)
	}
	if c.unclaimed { // its record is acquired, and released like the record of a job that moves at its claim
		out := c.awaitDuplicate(ctx)
		if out == nil {
			_, out = c.acquire(ctx)
		}
		return c.unlessLost(ctx, out)
	}
	places, out := c.enter(ctx)
	if out == nil {
		out = c.runOwned(ctx)
	}
	places.leave(ctx, out)
	return c.unlessLost(ctx, out)
}

// runOwned acquires the job's record, loads the data for its handler, and runs it.
func (c *claimed) runOwned(ctx context.Context) *outcome {
	l, out := c.prepare(ctx)
	if out != nil {
		return out
	}
	return l.run(ctx).conclude(ctx)
}

// prepare acquires the job, unless it has to move, and loads the data for its handler.
func (c *claimed) prepare(ctx context.Context) (*loaded, *outcome) {
	step := c.span.Step("recover")
	defer step.End(nil)
	o, out := c.acquire(ctx)
	if out != nil {
		return nil, out
	}
	if out := o.movesOnClaim(ctx); out != nil {
		return nil, out
	}
	l, out := o.load(ctx)
	if out != nil {
		return nil, out
	}
	c.envelope = c.lease.ClearPutBack(c.envelope) // it no longer waits
	return l, nil
}

// unlessLost returns the outcome of a job that is not run. A job that was stopped because
// another worker has its message, before this delivery acquired its record, has nothing to
// release.
func (c *claimed) unlessLost(ctx context.Context, out *outcome) *outcome {
	if out.action != interrupted || out.own != nil || c.lease.Gone() || drain.StopOf(ctx).Reason != job.Lost {
		return out
	}
	return &outcome{action: drop, reason: out.reason}
}

// end ends the trace, the renewal, the locks and the contexts of the delivery.
func (c *claimed) end(out *outcome, word string) {
	c.endTrace(out, word)
	if out.own != nil && out.own.quarantined {
		<-c.env.quarantine
	}
	c.stopRenewing()
	if c.idLock != nil {
		c.unlockID(out)
		c.env.active.RemoveJob(c.envelope.ID)
	}
	c.free()
	if out.own != nil {
		out.own.accountEnd()
	}
}

// unlockID releases the lock on the job's id. A handler that was abandoned keeps it
// until it returns, abandonedFor at most, so that a worker without others can try
// again.
func (c *claimed) unlockID(out *outcome) {
	if out.run != nil && out.run.abandoned {
		time.AfterFunc(abandonedFor, c.idLock.Unlock)
		return
	}
	c.idLock.Unlock()
}

// endTrace ends the span of the delivery. If the job failed, so did the span.
func (c *claimed) endTrace(out *outcome, word string) {
	if c.span == nil {
		return
	}
	c.span.Set("spotworker.outcome", word)
	if out.own != nil {
		c.span.Count("spotworker.job.generation", int64(out.own.claim.Record().Generation))
	}
	var err error
	if out.failure != "" {
		err = errors.New("job failed: " + out.failure)
	}
	c.span.End(err)
}
