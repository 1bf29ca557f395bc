package delivery

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

// settlement carries an outcome out. Its fields keep the steps that have been done, so that
// a repeat leaves them out.
type settlement struct {
	msg   *message
	rec   *recorder
	plan  *movePlan
	rules *kindRules

	failure     string // why the job failed; empty if it did not, or never ran
	endRecorded bool   // the record says how this delivery ended
	leftOut     bool   // the last state could not be recorded
	replaced    bool   // a new message on the same queue replaced this one
	deadLetter  bool   // the poison queue has the message
	word        string // how the delivery ended, for the trace
}

// settle carries an outcome out, and retries while storage fails and there is time. A
// conflict over the record changes the outcome. A message that cannot be dealt with is
// left: it becomes visible when its visibility timeout expires. The caller has entered the
// gate.
func (s *settlement) settle(ctx context.Context, out *outcome) {
	s.failure = out.failure
	begun, refused := time.Now(), 0
	for failures := 1; ; failures++ {
		err := s.applyTraced(ctx, out)
		if conflict := asConflict(err); conflict != nil {
			out = outcomeOf(conflict)
			err = s.applyTraced(ctx, out)
		}
		if err == nil {
			s.reportOutcome(out)
			return
		}
		if s.msg.cleanup.Err() != nil {
			s.reportLate(ctx, out, err)
			return
		}
		if checkpoint.PermanentRefusal(err) != "" {
			refused++
			losesResult := out.action == commit && s.rec.claim.Record().Status == checkpoint.Running
			if hasTriedEnough(drain.Of(ctx) != nil, losesResult, refused, time.Since(begun)) {
				out, failures = refusedOutcome(err), 0
				continue
			}
		}
		delay := s.msg.retryDelay(failures, err)
		s.msg.logRetry(ctx, out.action.String(), err, delay)
		_ = retry.Sleep(s.msg.cleanup, delay) // the next try finds out if there is no time left
	}
}

// enterGate waits for this delivery's turn among the last writes of a drain.
func (s *settlement) enterGate(ctx context.Context, out *outcome) (leave func()) {
	if stop := drain.Of(ctx); stop == nil || stop.OneJob {
		return func() {}
	}
	size := s.rec.unsavedSize()
	if out.action == interrupted && s.rec.job.Job != nil && s.rec.job.HasBeforeSave() {
		size = math.MaxInt // outputs, whose size is not known in advance
	}
	leave, err := s.msg.runner.gate.Enter(s.msg.cleanup, size)
	if err != nil {
		return func() {} // no time left: settle finds that out and logs it
	}
	return leave
}

// applyTraced is apply, as a part of the delivery's trace.
func (s *settlement) applyTraced(ctx context.Context, out *outcome) error {
	if s.msg.span == nil {
		return s.apply(ctx, out)
	}
	step := s.msg.span.Settle(settleNames[out.action])
	err := s.apply(ctx, out)
	step.End(err)
	return err
}

// apply carries an outcome out, once. Every step of it may be repeated.
func (s *settlement) apply(ctx context.Context, out *outcome) error {
	switch out.action {
	case commit:
		return s.commit(out)
	case interrupted:
		return s.release(ctx, out)
	case retryLater:
		return s.recordFailure(ctx, out)
	case poison:
		return s.poison(ctx, out)
	case reject:
		return s.reject(out)
	case alreadyOver:
		return s.deleteFinished(out)
	case putBack:
		return s.putBack(out)
	case storageRefused:
		return s.putBackRefused(ctx, out)
	case requeue, skip:
		return s.requeue(ctx, out)
	default:
		s.msg.log.WarnContext(ctx, "message left alone; another worker may have its job", "reason", out.reason)
		return nil
	}
}

// commit ends the job with its result: the list of its outputs, record, payload, message,
// in this order.
func (s *settlement) commit(out *outcome) error {
	if err := s.rec.recordOutputs(s.msg.cleanup); err != nil {
		return err
	}
	if err := s.rec.claim.Commit(s.msg.cleanup, out.result); err != nil {
		return err
	}
	if err := s.deleteMessage(); err != nil {
		return err
	}
	r := s.rec.claim.Record()
	log := s.msg.log
	if r.Outputs.Files > 0 {
		log = log.With("output_files", r.Outputs.Files, "output_bytes", r.Outputs.Bytes)
	}
	log.Info("job committed", "generation", r.Generation, "interruptions", r.Interruptions, "result_bytes", len(out.result))
	return nil
}

// deleteMessage deletes the payload and the message of a job that is over.
func (s *settlement) deleteMessage() error {
	if err := s.msg.runner.Stores.Payloads.Discard(s.msg.cleanup, s.msg.envelope); err != nil {
		return err
	}
	s.msg.stopRenewing()
	return s.msg.lease.Complete(s.msg.cleanup)
}

// release hands an interrupted job to another worker: first the record with the last
// state, then the message. That becomes visible at once unless the handler took a
// break, or is replaced by one on the on-demand queue. A state that cannot be sent in
// time is left out.
func (s *settlement) release(ctx context.Context, out *outcome) error {
	if !s.endRecorded {
		s.plan.onRelease(ctx)
	}
	if err := s.releaseRecord(ctx, out); err != nil {
		return err
	}
	moved := s.plan.move(ctx)
	s.msg.stopRenewing()
	if err := s.releaseMessage(ctx, moved, out.delay); err != nil {
		return err
	}
	s.msg.log.InfoContext(ctx, "job released", "reason", out.reason, "fraction", s.rec.snapshot().Fraction,
		"state_bytes", s.rec.recordedSize(), "state_left_out", s.leftOut, "work_lost", s.lost(), "moved", moved)
	return nil
}

// lost returns the work of an interrupted run that no record has.
func (s *settlement) lost() time.Duration {
	if s.rec.watch == nil {
		return 0
	}
	if s.rec.recordedState() == "" {
		return s.rec.watch.Elapsed()
	}
	_, lost := s.rec.watch.Split(s.rec.latest(), s.leftOut)
	return lost
}

// releaseRecord writes that the job is open, with its last state if that can be sent in
// time.
func (s *settlement) releaseRecord(ctx context.Context, out *outcome) error {
	if s.rec.claim == nil || s.endRecorded {
		return nil // no record was acquired, or this is a repeat
	}
	write := s.rec.claim.Release
	if out.tookBreak {
		write = s.rec.claim.Break
	}
	err := s.writeEnd(ctx, true, write)
	if err == nil {
		s.endRecorded = true
		s.reportBreaks(out)
	}
	return err
}

// writeEnd makes the last write of the record, and notes whether it left the state out.
func (s *settlement) writeEnd(ctx context.Context, withOutputs bool, write func(context.Context, checkpoint.Snapshot) error) error {
	leftOut, err := s.rec.writeWithState(ctx, withOutputs, write)
	s.leftOut = s.leftOut || leftOut
	return err
}

// recordFailure counts a failure, and makes the message visible again later.
func (s *settlement) recordFailure(ctx context.Context, out *outcome) error {
	if !s.endRecorded {
		err := s.writeEnd(ctx, false, func(ctx context.Context, last checkpoint.Snapshot) error {
			return s.rec.claim.Fail(ctx, last, out.reason)
		})
		if err != nil {
			return err
		}
		s.endRecorded = true
		s.reportFailures()
	}
	s.msg.stopRenewing()
	if err := s.releaseMessage(ctx, false, out.delay); err != nil {
		return err
	}
	r := s.rec.claim.Record()
	// It is the earliest time: then the message is behind the others that are visible.
	s.msg.log.WarnContext(ctx, "job failed; it will be tried again", "error", out.reason,
		"failures", r.Failures, "failures_total", r.FailuresTotal, "visible_in", out.delay)
	return nil
}

// poison dead-letters a job: record, poison message, message, in this order.
func (s *settlement) poison(ctx context.Context, out *outcome) error {
	err := s.writeEnd(ctx, false, func(ctx context.Context, last checkpoint.Snapshot) error {
		if out.failed {
			return s.rec.claim.FailLast(ctx, last, out.reason)
		}
		return s.rec.claim.Poison(ctx, last, out.reason)
	})
	if err != nil {
		return err
	}
	return s.reject(out)
}

// reject moves the message to the poison queue.
func (s *settlement) reject(out *outcome) error {
	if err := s.putPoison(out); err != nil {
		return err
	}
	s.msg.stopRenewing()
	if err := s.msg.lease.Complete(s.msg.cleanup); err != nil {
		return err
	}
	s.msg.log.Error("message moved to the poison queue", "reason", out.reason)
	return nil
}

// putPoison puts the message on the poison queue, with the reason.
func (s *settlement) putPoison(out *outcome) error {
	if s.deadLetter {
		return nil // this is a repeat
	}
	p := queue.Poison{
		ID: s.msg.envelope.ID, Kind: s.msg.envelope.Kind, Reason: out.reason, PoisonedAt: time.Now().UTC(),
		Worker: s.msg.runner.owner, Origin: s.msg.lease.Queue().Name(), MessageID: s.msg.lease.ID, Body: s.msg.lease.Text(),
	}
	if err := s.msg.runner.Stores.Poison.PutPoison(s.msg.cleanup, p, s.msg.runner.Stores.Payloads); err != nil {
		return err
	}
	s.deadLetter = true
	return nil
}

// deleteFinished removes the message of a job that was over before.
func (s *settlement) deleteFinished(out *outcome) error {
	if out.record.Status == checkpoint.Poison {
		return s.reject(&outcome{reason: out.record.Reason})
	}
	if err := s.deleteMessage(); err != nil {
		return err
	}
	s.msg.log.Info("message deleted: its job is over already", "status", string(out.record.Status), "generation", out.record.Generation)
	return nil
}

// putBack makes the message visible again later, and counts since when it is put back.
func (s *settlement) putBack(out *outcome) error {
	s.msg.stopRenewing()
	back := s.msg.lease.PutBack
	if out.delay > 0 {
		back = func(ctx context.Context, e queue.Envelope, p *queue.Payloads) error {
			return s.msg.lease.PutBackFor(ctx, e, p, out.delay)
		}
	}
	if err := back(s.msg.cleanup, s.msg.envelope, s.msg.runner.Stores.Payloads); err != nil {
		return err
	}
	since := s.msg.envelope.PutBackSince
	if since.IsZero() {
		since = s.msg.lease.ClaimedAt // now is the first time
	}
	level := slog.LevelDebug
	due, leftOut := s.msg.runner.lines.putBack.Allow(s.msg.envelope.Kind, time.Now())
	if due {
		level = slog.LevelInfo
	}
	s.msg.log.Log(s.msg.cleanup, level, "message deferred", "reason", out.reason, "since", since, "suppressed", leftOut)
	return nil
}

// putBackRefused puts back a job if storage permanently refuses one of its blobs. Its record
// is released unless that is the blob.
func (s *settlement) putBackRefused(ctx context.Context, out *outcome) error {
	if s.rec.claim != nil && s.rec.claim.Exists() && s.rec.claim.Record().Status == checkpoint.Running {
		if err := s.releaseRecord(ctx, out); err != nil && checkpoint.PermanentRefusal(err) == "" {
			return err
		}
	}
	if err := s.putBack(out); err != nil {
		return err
	}
	s.msg.log.ErrorContext(ctx, "job requeued: storage refuses a blob of it until somebody changes that", "code", out.refusal, "reason",
		out.reason)
	return nil
}

// requeue makes the message visible again as if it had not been claimed: no slot of its
// kind was free here, or the kind's circuit breaker is open.
func (s *settlement) requeue(ctx context.Context, out *outcome) error {
	s.msg.stopRenewing()
	if err := s.msg.lease.Release(s.msg.cleanup, out.delay); err != nil {
		return err
	}
	s.msg.log.DebugContext(ctx, "job left to another worker", "reason", out.reason, "visible_in", out.delay)
	return nil
}

// releaseMessage makes the job's message visible to all after delay. If another message
// replaced it, it is deleted. If it would expire, or the service no longer finds it, a new
// message replaces it now. The record is open by then, so this delivery was the owner, and
// without a message no worker would find the job.
func (s *settlement) releaseMessage(ctx context.Context, moved bool, delay time.Duration) error {
	if moved || s.replaced {
		return s.msg.lease.Complete(s.msg.cleanup)
	}
	if !s.mustReplace(ctx) {
		if err := s.msg.lease.Release(s.msg.cleanup, delay); err != nil || !s.msg.lease.Gone() {
			return err
		}
	}
	if err := s.msg.lease.Queue().PutMoved(s.msg.cleanup, s.msg.envelope, delay, s.msg.runner.Stores.Payloads); err != nil {
		return err
	}
	s.replaced = true
	if s.msg.lease.Gone() {
		s.msg.log.WarnContext(ctx, "message was removed or has expired; put a new one for the job")
		return nil
	}
	s.msg.log.InfoContext(ctx, "message would expire; put a new one for the job", "expires", s.msg.lease.ExpiresAt)
	return s.msg.lease.Complete(s.msg.cleanup)
}

// mustReplace reports whether the message is known to be gone, or expires. If
// another worker has the message by now, that worker replaces it.
func (s *settlement) mustReplace(ctx context.Context) bool {
	stop := job.StopOf(ctx)
	return s.msg.lease.Gone() || !s.msg.lease.ExpiresAt.IsZero() && (stop == nil || stop.Reason != job.Lost)
}

// reportLate reports a delivery that could not be handed over in time: its record has
// the last state that was saved.
func (s *settlement) reportLate(ctx context.Context, out *outcome, err error) {
	s.leftOut = true
	s.reportRun(interrupted)
	s.msg.runner.counters.late.Add(1)
	s.word = outcomeLeft
	s.msg.runner.Observer.Ended(outcomeLeft)
	level := slog.LevelDebug
	due, suppressed := s.msg.runner.lines.late.Allow(s.msg.envelope.Kind, time.Now())
	if due {
		level = slog.LevelError
	}
	s.msg.log.Log(ctx, level, "no time left; the message becomes visible when its visibility timeout expires",
		"outcome", out.action.String(), "error", err, "suppressed", suppressed)
}

// reportOutcome counts the outcome of the delivery.
func (s *settlement) reportOutcome(out *outcome) {
	switch out.action {
	case commit:
		s.msg.runner.counters.committed.Add(1)
	case interrupted:
		s.msg.runner.counters.released.Add(1)
	default: // the log of a drain needs no other
	}
	if out.action == storageRefused {
		s.msg.runner.Observer.Refused(out.refusal)
	}
	if s.leftOut {
		s.msg.runner.counters.leftOut.Add(1)
		s.msg.runner.Observer.LeftOut()
	}
	word := outcomeWords[out.action]
	if s.plan.moved { // only a release moves a job
		word = outcomeMoved
	}
	s.reportRun(out.action)
	s.word = word
	s.msg.runner.Observer.Ended(word)
}

// reportRun reports the outcome of the handler's time, the job if it is done, and its
// failure if it failed.
func (s *settlement) reportRun(did action) {
	observer := s.msg.runner.Observer
	kind := s.msg.envelope.Kind
	if s.msg.runner.Kinds[kind] == nil {
		kind = otherKind
	}
	switch did {
	case commit:
		r := s.rec.claim.Record()
		exits := max(r.Generation-1-r.Interruptions-r.FailuresTotal, 0)
		s.msg.runner.running.Done(kind, s.rec.runTime())
		observer.Committed(kind, s.msg.sincePut(), s.rec.runTime(), r.Interruptions, exits)
	case retryLater, poison, reject:
		observer.Failed(kind, cmp.Or(s.failure, failureWithoutRun[did]))
	default: // no failure
	}
	if s.rec.watch == nil {
		return
	}
	took := s.rec.watch.Elapsed()
	switch did {
	case commit:
		observer.Spent(kind, effortCommitted, took)
	case retryLater, poison:
		observer.Spent(kind, effortFailed, took)
	case interrupted:
		lost := s.lost()
		s.msg.runner.counters.lost.Add(int64(lost))
		observer.Spent(kind, effortHandedOver, max(took-lost, 0))
		observer.Spent(kind, effortRedone, lost)
	default:
		observer.Spent(kind, effortRedone, took)
	}
}

// failureWithoutRun is why a job failed although its handler was not called.
var failureWithoutRun = map[action]string{retryLater: failedByError, poison: failedByExits, reject: failedMessage}

// reportFailures reports a job that failed so often in all that it may never end.
func (s *settlement) reportFailures() {
	if n := s.rec.claim.Record().FailuresTotal; circles(n) {
		s.msg.runner.Observer.Circles(circlesByFailures)
		s.msg.log.Warn("job circles: it keeps failing although it makes progress",
			"failures_total", n, "poison_at", job.MaxTotalFailures, "fraction", s.rec.claim.Record().Fraction)
	}
}

// reportBreaks reports a job that took so many breaks in a row that it may never
// end.
func (s *settlement) reportBreaks(out *outcome) {
	if n := s.rec.claim.Record().Breaks; out.tookBreak && circles(n) {
		s.msg.runner.Observer.Circles(circlesByBreaks)
		s.msg.log.Warn("job circles: it keeps taking breaks and its fraction does not grow",
			"breaks", n, "poison_at", job.MaxBreaks, "fraction", s.rec.claim.Record().Fraction)
	}
}
