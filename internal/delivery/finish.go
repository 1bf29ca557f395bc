package delivery

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/outage"
	"github.com/spotworker/spotworker/internal/outputs"
	"github.com/spotworker/spotworker/internal/outputs/paths"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

// finish carries an outcome out, and retries while storage fails and there is time. A
// conflict over the record changes the outcome. A message that cannot be dealt with is
// left: it becomes visible when its visibility timeout expires.
func (d *Delivery) finish(ctx context.Context, out outcome) {
	defer d.enterGate(ctx, out)()
	d.finishInTurn(ctx, out)
}

// finishInTurn is finish once it is this delivery's turn.
func (d *Delivery) finishInTurn(ctx context.Context, out outcome) {
	begun, refused := time.Now(), 0
	for failures := 1; ; failures++ {
		err := d.applyTraced(ctx, out)
		if conflict := asConflict(err); conflict != nil {
			out = outcomeOf(conflict)
			err = d.applyTraced(ctx, out)
		}
		if err == nil {
			d.reportOutcome(out)
			return
		}
		if d.cleanup.Err() != nil {
			d.reportLate(ctx, out, err)
			return
		}
		if checkpoint.PermanentRefusal(err) != "" {
			refused++
			losesResult := out.action == commit && d.claim.Record().Status == checkpoint.Running
			if hasTriedEnough(drain.Of(ctx) != nil, losesResult, refused, time.Since(begun)) {
				out, failures = refusedOutcome(err), 0
				continue
			}
		}
		delay := retryDelays.Delay(failures)
		d.logRetry(ctx, out.action.String(), err, delay)
		_ = retry.Sleep(d.cleanup, delay) // the next try finds out if there is no time left
	}
}

// reportLate reports a delivery that could not be handed over in time: its record has
// what was saved before.
func (d *Delivery) reportLate(ctx context.Context, out outcome, err error) {
	d.leftOut = true
	d.reportRun(interrupted)
	d.runner.counters.late.Add(1)
	d.tracedOutcome = outcomeLeft
	d.runner.observer.Ended(outcomeLeft)
	level := slog.LevelDebug
	due, suppressed := d.runner.lateLines.Allow(d.envelope.Kind, time.Now())
	if due {
		level = slog.LevelError
	}
	d.log.Log(ctx, level, "no time left; the message becomes visible when its visibility timeout expires",
		"outcome", out.action.String(), "error", err, "suppressed", suppressed)
}

// enterGate waits for this delivery's turn among the last writes of a drain.
func (d *Delivery) enterGate(ctx context.Context, out outcome) (leave func()) {
	if stop := drain.Of(ctx); stop == nil || stop.OneJob {
		return func() {}
	}
	size := d.unsavedSize()
	if out.action == interrupted && d.job != nil && d.job.HasBeforeSave() {
		size = math.MaxInt // outputs, whose size is not known in advance
	}
	leave, err := d.runner.gate.Enter(d.cleanup, size)
	if err != nil {
		return func() {} // no time left: finish finds that out and logs it
	}
	return leave
}

// applyTraced is apply, as a part of the delivery's trace.
func (d *Delivery) applyTraced(ctx context.Context, out outcome) error {
	if d.span == nil {
		return d.apply(ctx, out)
	}
	step := d.span.Settle(settleNames[out.action])
	err := d.apply(ctx, out)
	step.End(err)
	return err
}

// apply carries an outcome out, once. Every step of it may be repeated.
func (d *Delivery) apply(ctx context.Context, out outcome) error {
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
		d.log.WarnContext(ctx, "message left alone; another worker may have its job", "reason", out.reason)
		return nil
	}
}

// commit ends the job with its result: the list of its outputs, record, payload, message,
// in this order.
func (d *Delivery) commit(out outcome) error {
	if d.leavesNoRecord(out) {
		return d.commitWithoutRecord()
	}
	if err := d.recordOutputs(d.cleanup); err != nil {
		return err
	}
	if err := d.claim.Commit(d.cleanup, out.result); err != nil {
		return err
	}
	if err := d.deleteMessage(); err != nil {
		return err
	}
	r := d.claim.Record()
	log := d.log
	if r.Outputs.Files > 0 {
		log = log.With("output_files", r.Outputs.Files, "output_bytes", r.Outputs.Bytes)
	}
	log.Info("job committed", "generation", r.Generation, "interruptions", r.Interruptions, "result_bytes", len(out.result))
	return nil
}

// leavesNoRecord reports whether the job may end without a record ([job.Idempotent]):
// it has no result and no outputs, no one waits for it, and no write of a record was tried. A payload
// in a blob is deleted before the message, so only a record can tell a stale owner that
// another worker may still need it.
func (d *Delivery) leavesNoRecord(out outcome) bool {
	return d.idempotent && len(out.result) == 0 && (d.outputs == nil || d.outputs.IsEmpty()) && !d.envelope.Awaited && d.envelope.Payload.Ref() == nil && !d.claim.MayExist(d.cleanup)
}

// commitWithoutRecord deletes the message of a job that leaves no record. If another
// worker has the message by now, the job runs again there.
func (d *Delivery) commitWithoutRecord() error {
	if err := d.deleteMessage(); err != nil {
		return err
	}
	d.log.Info("job committed", "generation", 1, "interruptions", 0, "result_bytes", 0, "record", false)
	return nil
}

// deleteMessage deletes the payload and the message of a job that is over.
func (d *Delivery) deleteMessage() error {
	if err := d.account.payloads.Discard(d.cleanup, d.envelope); err != nil {
		return err
	}
	d.stopRenewing()
	return d.lease.Complete(d.cleanup)
}

// release hands an interrupted job to another worker: first the record with the last
// state, then the message. That becomes visible at once unless the handler took a
// break, or is replaced by one on the on-demand queue. A state that cannot be sent in
// time is left out.
func (d *Delivery) release(ctx context.Context, out outcome) error {
	if !d.endRecorded {
		d.planMove(ctx)
	}
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

// recordFailure counts a failure, and makes the message visible again later.
func (d *Delivery) recordFailure(ctx context.Context, out outcome) error {
	if !d.endRecorded {
		err := d.writeWithState(ctx, false, func(ctx context.Context, s checkpoint.Snapshot) error { return d.claim.Fail(ctx, s, out.reason) })
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
	d.log.WarnContext(ctx, "job failed; it will be tried again", "error", out.reason, "failures", d.claim.Record().Failures, "failures_total", d.claim.Record().FailuresTotal, "retry_in", out.delay)
	return nil
}

// poison dead-letters a job: record, poison message, message, in this order.
func (d *Delivery) poison(ctx context.Context, out outcome) error {
	err := d.writeWithState(ctx, false, func(ctx context.Context, s checkpoint.Snapshot) error {
		if out.failed {
			return d.claim.FailLast(ctx, s, out.reason)
		}
		return d.claim.Poison(ctx, s, out.reason)
	})
	if err != nil {
		return err
	}
	return d.reject(out)
}

// reject moves the message to the poison queue.
func (d *Delivery) reject(out outcome) error {
	p := queue.Poison{
		ID: d.envelope.ID, Kind: d.envelope.Kind, Reason: out.reason, PoisonedAt: time.Now().UTC(),
		Worker: d.runner.owner, Origin: d.lease.Queue().Name(), MessageID: d.lease.ID, Body: d.lease.Text(),
	}
	if err := d.account.poison.PutPoison(d.cleanup, p, d.account.payloads); err != nil {
		return err
	}
	d.stopRenewing()
	if err := d.lease.Complete(d.cleanup); err != nil {
		return err
	}
	d.log.Error("message moved to the poison queue", "reason", out.reason)
	return nil
}

// deleteFinished removes the message of a job that was over before.
func (d *Delivery) deleteFinished(out outcome) error {
	if out.record.Status == checkpoint.Poison {
		return d.reject(outcome{reason: out.record.Reason})
	}
	if err := d.deleteMessage(); err != nil {
		return err
	}
	d.log.Info("message deleted: its job is over already", "status", string(out.record.Status), "generation", out.record.Generation)
	return nil
}

// putBack makes the message visible again later, and counts since when it is put back.
func (d *Delivery) putBack(out outcome) error {
	d.stopRenewing()
	back := d.lease.PutBack
	if out.delay > 0 {
		back = func(ctx context.Context, e queue.Envelope, p *queue.Payloads) error {
			return d.lease.PutBackFor(ctx, e, p, out.delay)
		}
	}
	if err := back(d.cleanup, d.envelope, d.account.payloads); err != nil {
		return err
	}
	since := d.envelope.PutBackSince
	if since.IsZero() {
		since = d.lease.ClaimedAt // now is the first time
	}
	level := slog.LevelDebug
	due, leftOut := d.runner.putBackLines.Allow(d.envelope.Kind, time.Now())
	if due {
		level = slog.LevelInfo
	}
	d.log.Log(d.cleanup, level, "message deferred", "reason", out.reason, "since", since, "suppressed", leftOut)
	return nil
}

// putBackRefused puts back a job of which storage permanently refuses a blob. Its record
// is released unless that is the blob.
func (d *Delivery) putBackRefused(ctx context.Context, out outcome) error {
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

// requeue makes the message visible again as if it had not been claimed: no slot of its
// kind was free here, or the kind's circuit breaker is open.
func (d *Delivery) requeue(ctx context.Context, out outcome) error {
	d.stopRenewing()
	if err := d.lease.Release(d.cleanup, out.delay); err != nil {
		return err
	}
	d.log.DebugContext(ctx, "job left to another worker", "reason", out.reason, "retry_in", out.delay)
	return nil
}

// releaseMessage makes the job's message visible to all after delay. One that another
// message replaced is deleted, and one that would expire, or that the service
// does not find any more, is replaced now: the record is open by then, so that
// this delivery was the owner, and without a message no worker would find the job.
func (d *Delivery) releaseMessage(ctx context.Context, moved bool, delay time.Duration) error {
	if moved || d.replaced {
		return d.lease.Complete(d.cleanup)
	}
	if !d.mustReplace(ctx) {
		if err := d.lease.Release(d.cleanup, delay); err != nil || !d.lease.Gone() {
			return err
		}
	}
	if err := d.lease.Queue().PutMoved(d.cleanup, d.envelope, delay, d.account.payloads); err != nil {
		return err
	}
	d.replaced = true
	if d.lease.Gone() {
		d.log.WarnContext(ctx, "message was removed or has expired; put a new one for the job")
		return nil
	}
	d.log.InfoContext(ctx, "message would expire; put a new one for the job", "expires", d.lease.ExpiresAt)
	return d.lease.Complete(d.cleanup)
}

// mustReplace reports whether the message is known to be gone, or expires. One
// that another worker has by now is that worker's to replace.
func (d *Delivery) mustReplace(ctx context.Context) bool {
	stop := job.StopOf(ctx)
	return d.lease.Gone() || !d.lease.ExpiresAt.IsZero() && (stop == nil || stop.Reason != job.Lost)
}

// retryDelays are the waits between the tries of a call to storage.
var retryDelays = retry.Backoff{First: 500 * time.Millisecond, Max: 15 * time.Second}

// unretryable are the errors that a further try cannot change.
var unretryable = []error{queue.ErrPayload, checkpoint.ErrDamaged, checkpoint.ErrTooLarge, checkpoint.ErrUnreadable, outputs.ErrManifest, paths.ErrRefused, outputs.ErrGone, errNotSent}

func isRetryable(err error) bool {
	if _, unreadable := errors.AsType[*outputs.SourceError](err); unreadable || job.IsPermanent(err) {
		return false
	}
	return !slices.ContainsFunc(unretryable, func(target error) bool { return errors.Is(err, target) })
}

// retry repeats a call until it succeeds; storage errors do not count against the job.
// It gives up when ctx ends, on errors that a further try cannot change, and after
// refusedTries that storage permanently refused.
func (d *Delivery) retry(ctx context.Context, what string, try func() error) error {
	refused := 0
	for failures := 1; ; failures++ {
		err := try()
		if err == nil || asConflict(err) != nil || !isRetryable(err) {
			return err
		}
		if checkpoint.PermanentRefusal(err) != "" {
			refused++
		}
		if refused >= refusedTries {
			return err
		}
		if ctx.Err() != nil {
			return err
		}
		delay := retryDelays.Delay(failures)
		d.logRetry(ctx, what, err, delay)
		if retry.Sleep(ctx, delay) != nil {
			return err
		}
	}
}

// logRetry logs that a call failed and will be tried again, and whether the service
// answered. Faults that concern more than this job are logged for the whole worker.
func (d *Delivery) logRetry(ctx context.Context, what string, err error, in time.Duration) {
	level := outage.Level(err, slog.LevelWarn)
	var response *azcore.ResponseError
	if errors.As(err, &response) && response.StatusCode < http.StatusInternalServerError {
		d.log.Log(ctx, level, "storage refused the call; trying again", "call", what, "code", response.ErrorCode, "error", err, "retry_in", in)
		return
	}
	d.log.Log(ctx, level, "storage is unavailable; trying again", "call", what, "error", err, "retry_in", in)
}
