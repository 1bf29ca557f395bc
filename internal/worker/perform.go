package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/queue"
)

// finish does what an outcome says, and repeats it while storage gives no
// answer and there is time. A conflict over the record changes what is to be
// done. A message that cannot be finished is left: it comes back by itself.
func (d *delivery) finish(ctx context.Context, out outcome) {
	leave := d.enterGate(ctx)
	defer leave()
	begun, refused := time.Now(), 0
	for delay := firstRetry; ; delay = min(delay*2, longestRetry) {
		err := d.apply(ctx, out)
		if conflict := asConflict(err); conflict != nil {
			out = outcomeOf(conflict)
			err = d.apply(ctx, out)
		}
		if err == nil {
			d.reportOutcome(out)
			return
		}
		if d.cleanup.Err() != nil {
			d.log.ErrorContext(ctx, "no time left; the message comes back by itself", "outcome", out.action.String(), "error", err)
			d.Observer.Ended(outcomeLeft)
			return
		}
		if checkpoint.PermanentRefusal(err) != "" {
			refused++
			losesResult := out.action == commit && d.claim.Record().Status == checkpoint.Running
			if hasTriedEnough(drain.Of(ctx) != nil, losesResult, refused, time.Since(begun)) {
				out, delay = refusedOutcome(err), firstRetry/2 // so that the next wait is the first
				continue
			}
		}
		d.logRetry(ctx, out.action.String(), err, delay)
		sleepFor(d.cleanup, delay)
	}
}

// enterGate takes its turn with the other last writes of a drain.
func (d *delivery) enterGate(ctx context.Context) (leave func()) {
	if stop := drain.Of(ctx); stop == nil || stop.OneJob {
		return func() {}
	}
	leave, err := d.gate.Enter(d.cleanup, d.unsavedSize())
	if err != nil {
		return func() {} // no time left: perform finds that out, and says so
	}
	return leave
}

// apply does what an outcome says, once. Every step of it may be repeated.
func (d *delivery) apply(ctx context.Context, out outcome) error {
	switch out.action {
	case commit:
		return d.commit(out)
	case interrupted:
		return d.release(ctx, out)
	case retryLater:
		return d.recordFailure(ctx, out)
	case poison:
		return d.poison(ctx, out)
	case reject:
		return d.reject(out)
	case alreadyOver:
		return d.deleteFinished(out)
	case putBack:
		return d.putBack(out)
	case storageRefused:
		return d.putBackRefused(ctx, out)
	case requeue, skip:
		return d.requeue(ctx, out)
	default:
		d.log.WarnContext(ctx, "delivery dropped", "reason", out.reason)
		return nil
	}
}

// commit ends the job with its result: record, payload, message, in that order.
func (d *delivery) commit(out outcome) error {
	if err := d.claim.Commit(d.cleanup, out.result); err != nil {
		return err
	}
	if err := d.deleteMessage(); err != nil {
		return err
	}
	r := d.claim.Record()
	d.log.Info("job committed", "generation", r.Generation, "interruptions", r.Interruptions, "result_bytes", len(out.result))
	return nil
}

// deleteMessage removes what is left of a job that is over.
func (d *delivery) deleteMessage() error {
	if err := d.Payloads.Discard(d.cleanup, d.envelope); err != nil {
		return err
	}
	d.stopRenewing()
	return d.lease.Complete(d.cleanup)
}

// release gives an interrupted job to another worker: last state, then the
// message, visible at once unless the handler took a break, or a new one on the
// on-demand queue in its place. A state that cannot be sent in time is left out.
func (d *delivery) release(ctx context.Context, out outcome) error {
	if err := d.releaseRecord(ctx, out); err != nil {
		return err
	}
	moved := d.move(ctx)
	d.stopRenewing()
	if err := d.releaseMessage(ctx, moved, out.delay); err != nil {
		return err
	}
	d.log.InfoContext(ctx, "job released", "reason", out.reason, "fraction", d.snapshot().Fraction,
		"state_bytes", d.recordedSize(), "state_left_out", d.leftOut, "moved", moved)
	return nil
}

// recordFailure counts a failure and lets the job come back later.
func (d *delivery) recordFailure(ctx context.Context, out outcome) error {
	if !d.endRecorded {
		err := d.writeWithState(ctx, func(ctx context.Context, s checkpoint.Snapshot) error { return d.claim.Fail(ctx, s, out.reason) })
		if err != nil {
			return err
		}
		d.endRecorded = true
		d.reportFailures()
	}
	d.stopRenewing()
	if err := d.releaseMessage(ctx, false, out.delay); err != nil {
		return err
	}
	d.log.WarnContext(ctx, "job failed; it will be tried again", "error", out.reason, "failures", d.claim.Record().Failures, "failures_total", d.claim.Record().FailuresTotal, "in", out.delay)
	return nil
}

// poison ends a job that cannot be done: record, poison message, message.
func (d *delivery) poison(ctx context.Context, out outcome) error {
	err := d.writeWithState(ctx, func(ctx context.Context, s checkpoint.Snapshot) error { return d.claim.Poison(ctx, s, out.reason) })
	if err != nil {
		return err
	}
	return d.reject(out)
}

// reject moves the message to the poison queue.
func (d *delivery) reject(out outcome) error {
	p := queue.Poison{
		ID: d.envelope.ID, Kind: d.envelope.Kind, Reason: out.reason, PoisonedAt: time.Now().UTC(),
		Worker: d.owner, Origin: d.lease.Queue().Name(), MessageID: d.lease.ID, Body: d.lease.Text(),
	}
	if err := d.Poison.PutPoison(d.cleanup, p, d.Payloads); err != nil {
		return err
	}
	d.stopRenewing()
	if err := d.lease.Complete(d.cleanup); err != nil {
		return err
	}
	d.log.Error("message moved to the poison queue", "reason", out.reason)
	return nil
}

// deleteFinished does what is left to do for a job that is over already.
func (d *delivery) deleteFinished(out outcome) error {
	if out.record.Status == checkpoint.Poison {
		return d.reject(outcome{reason: out.record.Reason})
	}
	if err := d.deleteMessage(); err != nil {
		return err
	}
	d.log.Info("message deleted: its job is over already", "status", string(out.record.Status), "generation", out.record.Generation)
	return nil
}

// putBack leaves the job to others, or to later.
func (d *delivery) putBack(out outcome) error {
	d.stopRenewing()
	back := d.lease.PutBack
	if out.delay > 0 {
		back = func(ctx context.Context, e queue.Envelope, p *queue.Payloads) error {
			return d.lease.PutBackFor(ctx, e, p, out.delay)
		}
	}
	if err := back(d.cleanup, d.envelope, d.Payloads); err != nil {
		return err
	}
	since := d.envelope.PutBackSince
	if since.IsZero() {
		since = d.lease.ClaimedAt // now is the first time
	}
	level := slog.LevelDebug
	due, leftOut := d.putBacks.allow(d.envelope.Kind, time.Now())
	if due {
		level = slog.LevelInfo
	}
	d.log.Log(d.cleanup, level, "message put back", "reason", out.reason, "since", since, "more_in_the_last_minute", leftOut)
	return nil
}

// putBackRefused puts a job back of which storage refuses a blob for good. Its record is
// opened if it is another blob that is refused; otherwise it stays as it is.
func (d *delivery) putBackRefused(ctx context.Context, out outcome) error {
	if d.claim != nil && d.claim.Exists() && d.claim.Record().Status == checkpoint.Running {
		if err := d.releaseRecord(ctx, out); err != nil && checkpoint.PermanentRefusal(err) == "" {
			return err
		}
	}
	if err := d.putBack(out); err != nil {
		return err
	}
	d.log.ErrorContext(ctx, "job requeued: storage refuses a blob of it until somebody changes that", "code", out.refusal, "reason", out.reason)
	return nil
}

// requeue leaves the job to others, or to later, as if it had not been claimed: no
// place of its kind was free here, or the kind rests here.
func (d *delivery) requeue(ctx context.Context, out outcome) error {
	d.stopRenewing()
	if err := d.lease.Release(d.cleanup, out.delay); err != nil {
		return err
	}
	d.log.DebugContext(ctx, "job gave way", "reason", out.reason, "in", out.delay)
	return nil
}
