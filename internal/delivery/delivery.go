package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/haste"
	"github.com/spotworker/spotworker/internal/presence"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// delivery is one message in hand.
type Delivery struct {
	runner   *Runner
	lease    *queue.Lease
	renewer  *renewer
	envelope queue.Envelope
	deferFor time.Duration // how long to hide a message whose kind others have
	unusable *outcome      // what to do with a message that is no job of ours
	log      *slog.Logger
	untrack  func()  // takes the job off the worker's list
	idLock   *idLock // to start the id's handler; nil for a message that is no job of ours

	// cleanup outlives a stop by what the drain's budget allows.
	cleanup context.Context

	// tries bounds the tries of single calls once all work is stopped. last has
	// it, and so must every other context of a write that a stop does not cancel.
	tries *haste.Tries

	// cancel stops this job alone, unless it is stopped already.
	cancel func(*drain.Drain)

	// provesDone is closed when the delivery is over, closed when its handler has
	// returned and its cleanups have run; nil if it was never called.
	finished, closed chan struct{}
	abandoned        bool // the handler did not return in time

	claim         *checkpoint.Claim
	job           *job.Job
	recordWritten time.Time       // when the record that it found was written last, by the local clock
	restored      *job.Progress   // what the handler began with
	saved         *job.Progress   // what was recorded last, as far as this delivery knows
	cost          checkpoint.Cost // of saving this job's state
	jobLimits     job.Limits      // of the job's kind and message
	writeFailed   bool            // the last write got no answer
	startFraction float64         // the fraction done when the handler was called
	quarantined   bool            // this delivery holds the worker's place for a suspect
	endRecorded   bool            // the record says already how this delivery ended
	leftOut       bool            // the last state could not be recorded
	moved         bool            // a message on the on-demand queue stands for this one
	replaced      bool            // a new message on the same queue does
}

// Open makes the delivery of a message that was claimed. The claim loop calls it, so
// that of two messages with one id the first one claimed gets to run.
func (r *Runner) Open(lease *queue.Lease) *Delivery {
	d := &Delivery{
		runner: r, lease: lease,
		log: r.log.With("message_id", lease.ID), untrack: func() {}, finished: make(chan struct{}),
	}
	r.observer.Delivered()
	d.unusable = d.decode()
	if d.unusable == nil {
		d.idLock = r.active.lockFor(d.envelope.ID)
		d.deferFor = r.deferFor(d.envelope.Kind, lease.Queue().Name())
	}
	r.active.addLease(lease)
	return d
}

// Result says whether a delivery ran its job.
type Result int

const (
	Ran     Result = iota // the job was run, or its message was dealt with for good
	NotRun                // the message was left to others, or to later
	Skipped               // the message was left to others because its kind, or the job, fails on this worker
)

// Run takes the message through to its end. ctx ends when work has to stop.
func (d *Delivery) Run(ctx context.Context) Result {
	tries := d.runner.latency.NewTries(ctx)
	cleanup, cancelCleanup := drain.Outlive(ctx, drain.UntilEnd)
	defer cancelCleanup()
	cleanup = tries.In(cleanup)
	ctx, cancel := d.stoppable(ctx)
	defer cancel()
	d.cleanup, d.tries = cleanup, tries
	defer d.untrack()
	defer d.unlockID()
	d.renewer = startRenewing(cleanup, d.lease, d.runner.pace, d.log, d.messageLost)
	defer d.stopRenewing()
	defer d.leaveQuarantine()
	var out outcome
	if d.unusable != nil {
		out = *d.unusable
	} else {
		out = d.runJob(ctx)
	}
	d.finish(ctx, out)
	close(d.finished)
	if d.closed != nil && !d.abandoned {
		select {
		case <-d.closed:
		case <-cleanup.Done():
		}
	}
	return out.action.result()
}

// unlockID ends this delivery's hold on its id. A handler that was abandoned keeps
// it until it returns, abandonedFor at most: one that hangs must not keep a worker
// that is alone from trying again.
func (d *Delivery) unlockID() {
	switch {
	case d.idLock == nil:
	case d.abandoned:
		time.AfterFunc(abandonedFor, d.idLock.unlock)
	default:
		d.idLock.unlock()
	}
}

// runJob is a job's way from the message that was read to what is to be done with it.
func (d *Delivery) runJob(ctx context.Context) outcome {
	handler, out, ok := d.findHandler(ctx)
	if !ok {
		return out
	}
	d.jobLimits = d.limitsFor(handler)
	if !d.idLock.lock(ctx, duplicatePatience) {
		return d.duplicate(ctx)
	}
	pass, out, ok := d.enterBreaker(ctx)
	if !ok {
		return out
	}
	var end *ended // nil until the handler was called
	defer func() { d.leaveBreaker(ctx, pass, end) }()
	leave, out, ok := d.runner.kindLimits.enter(ctx, d.envelope.Kind)
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
	d.envelope = d.lease.ClearPutBack(d.envelope) // it is worked on
	end = new(d.runHandler(ctx, handler))
	d.claim.CloseReaders() // the handler is done, or given up
	if end.failed() {
		*end = d.saveStream(ctx, *end)
	}
	d.recordMachine(*end)
	return decide(*end, d.claim.After(d.snapshot()), d.jobLimits)
}

// decode decodes the message. It returns what is to be done with one that is no job
// of ours, and nil otherwise.
func (d *Delivery) decode() (unusable *outcome) {
	envelope, err := queue.Decode(d.lease.Text())
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
	d.envelope = envelope
	d.untrack = d.runner.active.addJob(envelope.ID)
	d.log = d.log.With("job_id", envelope.ID, "kind", envelope.Kind)
	return nil
}

// findHandler returns the handler of this kind of work. A kind that this worker lacks
// may be another worker's: fleets may differ in kinds.
func (d *Delivery) findHandler(ctx context.Context) (job.Handler, outcome, bool) {
	if handler := d.runner.kinds[d.envelope.Kind]; handler != nil {
		return handler, outcome{}, true
	}
	kind := d.envelope.Kind
	seen, err := d.runner.fleet.Sample(ctx, sampleEvery)
	if err != nil {
		d.log.WarnContext(ctx, "heartbeats not listed; another worker may have the kind", "error", err)
		return nil, d.deferKind(presence.MayHave), false
	}
	if has, _ := seen.whoHas(kind, d.lease.Queue().Name(), time.Now()); has != presence.HasNot {
		return nil, d.deferKind(has), false
	}
	reason := fmt.Sprintf("no worker has a handler for kind %q", kind)
	if !unknownForLong(d.envelope.PutBackSince, d.lease.ClaimedAt) {
		return nil, outcome{action: putBack, reason: reason, delay: d.runner.jitter.Vary(putBackDelay(d.envelope.PutBackSince, d.lease.ClaimedAt))}, false
	}
	return nil, d.poisonKind(ctx, reason), false
}

// deferKind leaves a message to the worker that has, or may have, its kind. The
// hour after which an unknown kind is poison begins when no worker has it.
func (d *Delivery) deferKind(has presence.Has) outcome {
	delay, reason := cmp.Or(d.deferFor, d.runner.jitter.Vary(minDefer)), "another worker has a handler for kind %q"
	if has == presence.MayHave {
		delay, reason = max(delay, d.runner.jitter.Vary(minPutBack)), "another worker may have a handler for kind %q"
	}
	d.envelope = d.lease.ClearPutBack(d.envelope)
	return outcome{action: requeue, reason: fmt.Sprintf(reason, d.envelope.Kind), delay: delay}
}

// poisonKind poisons a job whose kind no worker has had for an hour, if its record
// is this message's to claim and nobody has worked on it. One in progress waits for
// a worker that has its kind, however long that takes.
func (d *Delivery) poisonKind(ctx context.Context, reason string) outcome {
	record, ruling, err := d.readRecord(ctx)
	if err != nil {
		return stopped(ctx, err)
	}
	if ruling == checkpoint.Acquire && record.InProgress() {
		d.log.WarnContext(ctx, "job in progress waits for a worker with its kind: start one, or purge the job's message", "fraction", record.Fraction)
		return outcome{action: putBack, reason: reason + "; the job is in progress", delay: d.runner.jitter.Vary(maxPutBack)}
	}
	if out, ok := d.applyRuling(ctx, record, ruling); !ok {
		return out
	}
	return outcome{action: poison, reason: reason + ", for " + unknownKindFor.String()}
}

// unknownForLong reports whether a message that is put back since then because no
// worker has its kind was given its time. now is the service's.
func unknownForLong(since, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) >= unknownKindFor
}

// putBackDelay returns how long to hide a message whose kind no worker has.
func putBackDelay(since, now time.Time) time.Duration {
	if since.IsZero() {
		since = now
	}
	return min(max(now.Sub(since)/4, minPutBack), maxPutBack)
}

// ref is what the record's rules need to know of this delivery.
func (d *Delivery) ref() checkpoint.Delivery {
	return checkpoint.Delivery{
		ID: d.envelope.ID, Kind: d.envelope.Kind,
		PayloadHash: d.envelope.Payload.Hash(), MessageID: d.lease.ID,
		Steady: d.runner.uptime() >= steadyFor,
	}
}

// messageLost stops the job because its message went to another worker.
func (d *Delivery) messageLost(err error) {
	d.log.Warn("message lost; stopping the job", "error", err)
	d.stopJob(job.Lost, err)
}

// stoppable returns a context that ends with ctx, or when d.cancel stops this job
// alone. A stop of its own is heard by the worker's drains, so that an eviction
// leaves the job no more time than the others. Cancel frees all of it.
func (d *Delivery) stoppable(ctx context.Context) (context.Context, context.CancelFunc) {
	work := ctx
	ctx, stop := context.WithCancelCause(work)
	d.cancel = func(own *drain.Drain) {
		d.runner.drains.Add(own)
		if stop(own); drain.Of(ctx) != own {
			d.runner.drains.Remove(own) // it came too late
		}
	}
	return ctx, func() {
		stop(nil)
		if own := drain.Of(ctx); own != nil && own != drain.Of(work) {
			d.runner.drains.Remove(own)
		}
	}
}

// stopRenewing ends the renewals. It comes before the last call for the message.
func (d *Delivery) stopRenewing() {
	d.runner.active.removeLease(d.lease)
	d.renewer.stopAndWait()
}

func (d *Delivery) stopJob(reason job.Reason, err error) {
	d.cancel(drain.ForJob(reason, err, time.Now()))
}
