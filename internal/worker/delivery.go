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

	claim    *checkpoint.Claim
	job      *job.Job
	saved    *job.Progress // what was recorded last, as far as this delivery knows
	suspect  bool          // this delivery holds the worker's place for a suspect
	recorded bool          // the record says already how this delivery ended
	leftOut  bool          // the last state could not be recorded
}

// deliver takes one message through to its end. ctx ends when work has to stop.
func (e *engine) deliver(ctx context.Context, lease *queue.Lease) {
	last, cancelLast := outlive(ctx, drainEnd)
	defer cancelLast()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &delivery{
		engine: e, lease: lease, last: last, cancel: cancel,
		log: e.Log.With("message_id", lease.ID), letGo: func() {},
	}
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
}

// run is a job's way from the message that was read to what is to be done with it.
func (d *delivery) run(ctx context.Context) outcome {
	handler, out, ok := d.handler(ctx)
	if !ok {
		return out
	}
	if out, ok := d.recover(ctx); !ok {
		return out
	}
	if out, ok := d.load(ctx); !ok {
		return out
	}
	end := d.process(ctx, handler)
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

// recover makes the job's record this delivery's to write. A first delivery
// reads nothing: its first write finds out whether someone was before it.
func (d *delivery) recover(ctx context.Context) (outcome, bool) {
	if d.lease.Deliveries == 1 && !d.envelope.Resume {
		d.claim = d.Records.Fresh(d.ref(), d.owner)
		return outcome{}, true
	}
	return d.look(ctx)
}

// look reads the record, and claims or creates it if the rules say so.
func (d *delivery) look(ctx context.Context) (outcome, bool) {
	var record checkpoint.Record
	var ruling checkpoint.Ruling
	err := d.insist(ctx, "read the job's record", func() (err error) {
		record, ruling, err = d.Records.Look(ctx, d.ref())
		return err
	})
	if err != nil {
		return stopped(ctx, err), false
	}
	switch ruling {
	case checkpoint.Create:
		return d.take(ctx, func() (*checkpoint.Claim, error) { return d.Records.Create(ctx, d.ref(), d.owner) })
	case checkpoint.Take:
		if out, ok := d.admit(record); !ok {
			return out, false
		}
		return d.take(ctx, func() (*checkpoint.Claim, error) { return d.Records.Take(ctx, d.ref(), record, d.owner) })
	default:
		return ruled(ruling, record), false
	}
}

// take claims the record. The first try makes the claim; further ones repeat
// its write, which settles what became of the one before.
func (d *delivery) take(ctx context.Context, claim func() (*checkpoint.Claim, error)) (outcome, bool) {
	err := d.insist(ctx, "claim the job's record", func() (err error) {
		if d.claim == nil {
			d.claim, err = claim()
			return err
		}
		return d.claim.Touch(ctx, checkpoint.Snapshot{})
	})
	if conflict := asConflict(err); conflict != nil {
		return outcomeOf(conflict), false
	}
	if err != nil {
		return stopped(ctx, err), false
	}
	if n := d.claim.Record().SilentEnds; n >= maxSilentEnds {
		return outcome{action: poison, reason: fmt.Sprintf(
			"%d starts in a row ended without a word and without progress: the job may be killing its worker", n)}, false
	}
	return outcome{}, true
}

// admit lets one suspect at a time through, so that a job that kills its
// process does not drag its neighbours along for ever.
func (d *delivery) admit(found checkpoint.Record) (outcome, bool) {
	n := checkpoint.SilentEnds(found, d.ref())
	if n < suspectAfter || n >= maxSilentEnds {
		return outcome{}, true
	}
	select {
	case d.suspects <- struct{}{}:
		d.suspect = true
		d.log.Warn("job is a suspect: its last starts ended without a word", "silent_ends", n)
		return outcome{}, true
	default:
		return outcome{action: putBack, reason: "another suspect is running on this worker"}, false
	}
}

func (d *delivery) leaveSuspect() {
	if d.suspect {
		<-d.suspects
	}
}

// load makes the job as its handler sees it: payload, and the state to go on from.
func (d *delivery) load(ctx context.Context) (outcome, bool) {
	payload, out, ok := d.payload(ctx)
	if !ok {
		return out, false
	}
	restored, out, ok := d.restore(ctx)
	if !ok {
		return out, false
	}
	record := d.claim.Record()
	d.saved = restored
	d.job = job.New(job.Spec{
		ID: d.envelope.ID, Kind: d.envelope.Kind, Payload: payload,
		Attempt: record.Failures + 1, Deadline: d.envelope.Deadline,
	}, restored)
	d.log.InfoContext(ctx, "job started", "generation", record.Generation, "attempt", record.Failures+1, "resumed_at", record.Fraction)
	return outcome{}, true
}

// payload fetches what the job is to work on. A first delivery whose payload
// blob is gone may be a duplicate of a job that is done: the record tells.
func (d *delivery) payload(ctx context.Context) ([]byte, outcome, bool) {
	var payload []byte
	err := d.insist(ctx, "load the job's payload", func() (err error) {
		payload, err = d.Payloads.Load(ctx, d.envelope)
		return err
	})
	switch {
	case err == nil:
		return payload, outcome{}, true
	case !errors.Is(err, queue.ErrPayload):
		return nil, stopped(ctx, err), false
	}
	if !d.claim.Exists() {
		d.claim = nil
		if out, ok := d.look(ctx); !ok {
			return nil, out, false
		}
	}
	return nil, outcome{action: poison, reason: err.Error()}, false
}

// restore reads the recorded state, nil on a fresh start.
func (d *delivery) restore(ctx context.Context) (*job.Progress, outcome, bool) {
	var snapshot *checkpoint.Snapshot
	err := d.insist(ctx, "restore the job's state", func() (err error) {
		snapshot, err = d.claim.Restore(ctx)
		return err
	})
	switch conflict := asConflict(err); {
	case conflict != nil:
		return nil, outcomeOf(conflict), false
	case errors.Is(err, checkpoint.ErrDamaged):
		return nil, decide(ended{err: err}, d.claim.FailuresAfter(checkpoint.Snapshot{})), false
	case err != nil:
		return nil, stopped(ctx, err), false
	case snapshot == nil:
		return nil, outcome{}, true
	}
	return &job.Progress{
		State: snapshot.State, Version: snapshot.Version,
		Fraction: snapshot.Fraction, Text: snapshot.Text,
	}, outcome{}, true
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

// stopped is the outcome of a delivery that was stopped before it came to its
// handler; err is what it was waiting for.
func stopped(ctx context.Context, err error) outcome {
	return outcome{action: interrupted, reason: fmt.Sprintf("%v, before it began: %v", stopOf(ctx), err)}
}

// Bounds of the wait between two tries of insist.
const (
	firstInsist   = 500 * time.Millisecond
	longestInsist = 15 * time.Second
)

// insist repeats what storage trouble kept from working: that is no failure of
// the job. It gives up when ctx ends, and on answers that a repeat cannot change.
func (d *delivery) insist(ctx context.Context, what string, try func() error) error {
	for delay := firstInsist; ; delay = min(delay*2, longestInsist) {
		err := try()
		if err == nil || asConflict(err) != nil || errors.Is(err, queue.ErrPayload) || errors.Is(err, checkpoint.ErrDamaged) {
			return err
		}
		if ctx.Err() != nil {
			return err
		}
		d.log.WarnContext(ctx, "storage gave no answer; trying again", "what", what, "error", err, "in", delay)
		if !sleepFor(ctx, delay) {
			return err
		}
	}
}
