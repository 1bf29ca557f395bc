package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// delivery is one message in hand.
type delivery struct {
	*engine
	lease    *queue.Lease
	renewer  *renewer
	envelope queue.Envelope
	log      *slog.Logger
	letGo    func() // takes the job off the worker's list

	// last outlives a stop by what the drain's budget allows.
	last context.Context

	// cancel stops this job alone.
	cancel context.CancelCauseFunc

	// performed is closed when the delivery is over, closed when its handler has
	// returned and its cleanups have run; nil if it was never called.
	performed, closed chan struct{}
	abandoned         bool // the handler did not return in time

	claim    *checkpoint.Claim
	job      *job.Job
	saved    *job.Progress   // what was recorded last, as far as this delivery knows
	cost     checkpoint.Cost // of saving this job's state
	failed   bool            // the last write got no answer
	from     float64         // the fraction done when the handler was called
	suspect  bool            // this delivery holds the worker's place for a suspect
	recorded bool            // the record says already how this delivery ended
	leftOut  bool            // the last state could not be recorded
	moved    bool            // a message on the on-demand queue stands for this one
	replaced bool            // a new message on the same queue does
}

// deliver takes one message through to its end. ctx ends when work has to stop.
// It reports whether that says something about how long jobs take.
func (e *engine) deliver(ctx context.Context, lease *queue.Lease) (telling bool) {
	last, cancelLast := outlive(ctx, drainEnd)
	defer cancelLast()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &delivery{
		engine: e, lease: lease, last: last, cancel: cancel,
		log: e.Log.With("message_id", lease.ID), letGo: func() {}, performed: make(chan struct{}),
	}
	e.Observer.Delivered()
	out, ok := d.read()
	defer func() { d.letGo() }()
	e.held.add(lease)
	d.renewer = renewWhile(last, lease, e.pace, d.log, d.lost)
	defer d.keepNoMore()
	defer d.leaveSuspect()
	if ok {
		out = d.run(ctx)
	}
	d.perform(ctx, out)
	close(d.performed)
	if d.closed != nil && !d.abandoned {
		select {
		case <-d.closed:
		case <-last.Done():
		}
	}
	return out.action != giveWay
}

// run is a job's way from the message that was read to what is to be done with it.
func (d *delivery) run(ctx context.Context) outcome {
	handler, out, ok := d.handler(ctx)
	if !ok {
		return out
	}
	leave, out, ok := d.places.enter(ctx, d.envelope.Kind)
	if !ok {
		return out
	}
	defer leave()
	if out, ok := d.recover(ctx); !ok {
		return out
	}
	if out, ok := d.load(ctx); !ok {
		return out
	}
	end := d.process(ctx, handler)
	d.claim.CloseReaders() // the handler is done, or given up
	if end.failed() {
		end = d.saveStream(ctx, end)
	}
	return decide(end, d.claim.FailuresAfter(d.snapshot()))
}

// read decodes the message.
func (d *delivery) read() (outcome, bool) {
	envelope, err := queue.Decode(d.lease.Text())
	var invalid *queue.InvalidError
	switch {
	case errors.Is(err, queue.ErrForeign) && d.DefaultKind != "":
		envelope = queue.Foreign(d.lease.Text(), d.lease.ID, d.DefaultKind, d.lease.InsertedAt)
	case errors.Is(err, queue.ErrForeign):
		return outcome{action: reject, reason: "message is neither an envelope nor plain work for a default kind (--default-kind is not set)"}, false
	case errors.As(err, &invalid):
		d.envelope.ID = invalid.ID
		return outcome{action: reject, reason: invalid.Reason}, false
	}
	d.envelope = envelope
	d.letGo = d.inHand.add(envelope.ID)
	d.log = d.log.With("job_id", envelope.ID, "kind", envelope.Kind)
	return outcome{}, true
}

// handler finds who does this kind of work. An unknown kind may be known to
// another worker, for instance during an update, but not for ever.
func (d *delivery) handler(ctx context.Context) (job.Handler, outcome, bool) {
	if handler := d.Kinds[d.envelope.Kind]; handler != nil {
		return handler, outcome{}, true
	}
	reason := fmt.Sprintf("no worker here has a handler for kind %q", d.envelope.Kind)
	since := d.envelope.PutBackSince
	if since.IsZero() || d.lease.ClaimedAt.Sub(since) < unknownKindFor {
		return nil, outcome{action: putBack, reason: reason}, false
	}
	// Only a record that this message may claim is poisoned.
	if out, ok := d.look(ctx); !ok {
		return nil, out, false
	}
	return nil, outcome{action: poison, reason: reason + ", for " + unknownKindFor.String()}, false
}

// ref is what the record's rules need to know of this delivery.
func (d *delivery) ref() checkpoint.Delivery {
	return checkpoint.Delivery{
		ID: d.envelope.ID, Kind: d.envelope.Kind,
		PayloadHash: d.envelope.Payload.Hash(), MessageID: d.lease.ID,
	}
}

// lost stops the job because its message went to another worker.
func (d *delivery) lost(err error) {
	d.log.Warn("message lost; stopping the job", "error", err)
	d.stopAlone(job.Lost, err)
}

// keepNoMore ends the renewals. It comes before the last call for the message.
func (d *delivery) keepNoMore() {
	d.held.remove(d.lease)
	d.renewer.wait()
}

func (d *delivery) stopAlone(reason job.Reason, err error) {
	d.cancel(&job.Stop{Reason: reason, Deadline: time.Now().Add(strayGrace), Err: err})
}
