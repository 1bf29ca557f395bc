package delivery

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/deadline"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/job"
)

// settlement carries an outcome out. Its fields keep the steps that have been done, so that
// a repeat leaves them out.
type settlement struct {
	*claimed
	own *owned  // the job whose record is written; nil if this delivery owns none
	run *loaded // the job whose handler was called; nil for another

	endRecorded bool // the record says how this delivery ended
	leftOut     bool // the last state could not be recorded
	replaced    bool // a new message on the same queue replaced this one
	deadLetter  bool // the poison queue has the message

	movedTo *queue.Queue // the queue of the message that replaced this one on another; nil if none did

	verdict    deadline.Verdict // whether the job will meet its deadline, before its record was released
	moveReason *string          // why the release moves the job, empty if it does not; nil before that is known
	barred     *bool            // whether the job would wait in vain on the on-demand queue; nil if not known yet

	failure string             // why the job failed; empty if it did not, or never ran
	blame   checkpoint.Failure // of the failure
}

// settle carries an outcome out, and retries while storage fails and there is time. A
// conflict over the record changes the outcome. A message that cannot be dealt with is
// left: it becomes visible when its visibility timeout expires. It returns how the delivery ended,
// for the trace.
func settle(ctx context.Context, c *claimed, out *outcome) (word string) {
	s := &settlement{claimed: c, own: out.own, failure: out.failure, blame: out.blame}
	if out.run != nil {
		s.run = out.run.loaded
	}
	defer s.enterGate(ctx, out)()
	begun, refused := time.Now(), 0
	for failures := 1; ; failures++ {
		err := s.applyTraced(ctx, out)
		if conflict := asConflict(err); conflict != nil {
			out = outcomeOf(conflict)
			err = s.applyTraced(ctx, out)
		}
		if err == nil {
			return s.reportOutcome(out)
		}
		if c.cleanup.Err() != nil {
			return s.reportLate(ctx, out, err)
		}
		if checkpoint.PermanentRefusal(err) != "" {
			refused++
			losesResult := out.action == commit && s.own.claim.Record().Status == checkpoint.Running
			if hasTriedEnough(drain.Of(ctx) != nil, losesResult, refused, time.Since(begun)) {
				out, failures = refusedOutcome(err), 0
				continue
			}
		}
		delay := c.retryDelay(failures, err)
		c.logRetry(ctx, out.action.String(), err, delay)
		_ = retry.Sleep(c.cleanup, delay) // the next try finds out if there is no time left
	}
}

// enterGate waits for this delivery's turn among the last writes of a drain.
func (s *settlement) enterGate(ctx context.Context, out *outcome) (leave func()) {
	if stop := drain.Of(ctx); stop == nil || stop.OneJob {
		return func() {}
	}
	size := s.run.unsavedSize()
	if out.action == interrupted && s.run != nil && s.run.job.HasBeforeSave() {
		size = math.MaxInt // outputs, whose size is not known in advance
	}
	leave, err := s.env.gate.Enter(s.cleanup, size)
	if err != nil {
		return func() {} // no time left: settle finds that out and logs it
	}
	return leave
}

// applyTraced is apply, as a part of the delivery's trace.
func (s *settlement) applyTraced(ctx context.Context, out *outcome) error {
	if s.span == nil {
		return s.apply(ctx, out)
	}
	step := s.span.Settle(settleNames[out.action])
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
	case wait:
		return s.wait(ctx, out)
	default:
		s.log.WarnContext(ctx, "message left alone; another worker may have its job", "reason", out.reason)
		return nil
	}
}

// commit ends the job with its result: the list of its outputs, record, payload, message,
// in this order.
func (s *settlement) commit(out *outcome) error {
	if err := s.run.recordOutputs(s.cleanup); err != nil {
		return err
	}
	if err := s.own.claim.Commit(s.cleanup, out.result); err != nil {
		return err
	}
	if err := s.deleteMessage(); err != nil {
		return err
	}
	r := s.own.claim.Record()
	log := s.log
	if r.Outputs.Files > 0 {
		log = log.With("output_files", r.Outputs.Files, "output_bytes", r.Outputs.Bytes)
	}
	log.Info("job committed", "generation", r.Generation, "interruptions", r.Interruptions, "result_bytes", len(out.result))
	return nil
}

// deleteMessage deletes the payload and the message of a job that is over.
func (s *settlement) deleteMessage() error {
	if err := s.env.Stores.Payloads.Discard(s.cleanup, s.envelope); err != nil {
		return err
	}
	s.stopRenewing()
	return s.lease.Complete(s.cleanup)
}

// release hands an interrupted job to another worker: first the record with the last
// state, then the message. That becomes visible at once unless the handler took a
// break, or is replaced by one on another queue. A state that cannot be sent in
// time is left out.
func (s *settlement) release(ctx context.Context, out *outcome) error {
	if !s.endRecorded {
		s.judgeMove(ctx, out)
	}
	if err := s.releaseRecord(ctx, out); err != nil {
		return err
	}
	moved := s.move(ctx, out)
	s.stopRenewing()
	if err := s.releaseMessage(ctx, moved, out.delay); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "job released", "reason", out.reason, "fraction", s.run.snapshot().Fraction,
		"state_bytes", s.own.recordedSize(), "state_left_out", s.leftOut, "work_lost", s.lost(), "moved", moved)
	return nil
}

// lost returns the work of an interrupted run that no record has.
func (s *settlement) lost() time.Duration {
	if s.run == nil {
		return 0
	}
	if s.own.recordedState() == "" {
		return s.run.watch.Elapsed()
	}
	_, lost := s.run.watch.Split(s.run.latest(), s.leftOut)
	return lost
}

// releaseRecord writes that the job is open, with its last state if that can be sent in
// time.
func (s *settlement) releaseRecord(ctx context.Context, out *outcome) error {
	if s.own == nil || s.endRecorded {
		return nil // no record was acquired, or this is a repeat
	}
	write := s.own.claim.Release
	if out.tookBreak {
		write = s.own.claim.Break
	}
	err := s.writeEnd(ctx, true, write)
	if err == nil {
		s.endRecorded = true
		s.reportBreaks(out)
	}
	return err
}

// writeEnd makes the last write of the record, with the last report. If the state cannot be
// recorded, or cannot be sent in time, it writes the report without it: a state must
// not keep the job from ending. The outputs that a state relies on are sent before it, and
// withOutputs says that they are sent even if there is no new state.
func (s *settlement) writeEnd(ctx context.Context, withOutputs bool, write func(context.Context, checkpoint.Snapshot) error) (err error) {
	s.own.claim.SetFacts(s.facts)
	last, fault := s.run.unsaved(), tooLarge(s.run.latest())
	before := s.own.recordedState()
	if fault == nil {
		statesCtx, cancel := drain.Outlive(s.tries.In(ctx), drain.UntilStates)
		defer cancel()
		if withOutputs || last.HasState() {
			err = s.run.prepareOutputs(statesCtx)
		}
		if err == nil {
			err = s.own.writeSnapshot(statesCtx, last, write)
		}
		mayRepeat := isRetryable(err) && statesCtx.Err() == nil
		if err == nil || asConflict(err) != nil || mayRepeat {
			return err
		}
		fault = err
	}
	err = write(s.cleanup, last.WithoutState())
	// A write of the state whose reply was lost may have taken effect all the same.
	if err == nil && last.HasState() && s.own.recordedState() == before {
		s.log.ErrorContext(ctx, "last state not saved in time; the job resumes from the checkpoint before", "error", fault)
		s.leftOut = true
	}
	return err
}

// writeSnapshot makes a write, and measures it if it holds a state.
func (o *owned) writeSnapshot(ctx context.Context, s checkpoint.Snapshot, write func(context.Context, checkpoint.Snapshot) error) error {
	if !s.HasState() {
		return write(ctx, s)
	}
	return o.measureSave(func() error { return write(ctx, s) })
}

// facts returns the facts of the last write: of the run if there was one, and of its end.
func (s *settlement) facts(f checkpoint.Facts) checkpoint.Facts {
	if s.run != nil {
		f = s.run.facts(f)
	} else {
		f = s.own.facts(f)
	}
	f.Failure = s.blame
	if s.moveReason != nil {
		f.MoveReason = *s.moveReason
	}
	return f
}

// runTime returns how long handlers have run for the job, over all deliveries, as far as
// that is known.
func (s *settlement) runTime() time.Duration {
	if s.run == nil {
		return s.own.claim.EarlierRunTime()
	}
	return s.run.runTime()
}

// recordFailure counts a failure, and makes the message visible again later.
func (s *settlement) recordFailure(ctx context.Context, out *outcome) error {
	if !s.endRecorded {
		err := s.writeEnd(ctx, false, func(ctx context.Context, last checkpoint.Snapshot) error {
			return s.own.claim.Fail(ctx, last, out.reason)
		})
		if err != nil {
			return err
		}
		s.endRecorded = true
		s.reportFailures()
	}
	s.stopRenewing()
	if err := s.releaseMessage(ctx, false, out.delay); err != nil {
		return err
	}
	r := s.own.claim.Record()
	// It is the earliest time: then the message is behind the others that are visible.
	s.log.WarnContext(ctx, "job failed; it will be tried again", "error", out.reason,
		"failures", r.Failures, "failures_total", r.FailuresTotal, "visible_in", out.delay)
	return nil
}

// poison dead-letters a job: record, poison message, message, in this order. Before them comes
// the list of the outputs of a job that is to blame for its failure: they show what it did.
func (s *settlement) poison(ctx context.Context, out *outcome) error {
	if out.run != nil && job.IsOwnFault(out.run.err) {
		if err := s.run.recordOutputs(s.cleanup); err != nil && isRetryable(err) {
			return err
		}
	}
	err := s.writeEnd(ctx, false, func(ctx context.Context, last checkpoint.Snapshot) error {
		if out.failed {
			return s.own.claim.FailLast(ctx, last, out.reason)
		}
		return s.own.claim.Poison(ctx, last, out.reason)
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
	s.stopRenewing()
	if err := s.lease.Complete(s.cleanup); err != nil {
		return err
	}
	s.log.Error("message moved to the poison queue", "reason", out.reason)
	return nil
}

// putPoison puts the message on the poison queue, with the reason.
func (s *settlement) putPoison(out *outcome) error {
	if s.deadLetter {
		return nil // this is a repeat
	}
	p := queue.Poison{
		ID: s.envelope.ID, Kind: s.envelope.Kind, Reason: out.reason, PoisonedAt: time.Now().UTC(),
		Worker: s.env.owner, Origin: s.lease.Queue().Name(), MessageID: s.lease.ID, Body: s.lease.Text(),
	}
	if err := s.env.Stores.Poison.PutPoison(s.cleanup, p, s.env.Stores.Payloads); err != nil {
		return err
	}
	s.deadLetter = true
	return nil
}

// deleteFinished removes the message of a job, or of a run of it, that was over before.
func (s *settlement) deleteFinished(out *outcome) error {
	if out.record.Status == checkpoint.Poison && !out.record.IsPast(s.envelope.Again) {
		return s.reject(&outcome{reason: out.record.Reason})
	}
	if err := s.deleteMessage(); err != nil {
		return err
	}
	s.log.Info("message deleted: its job is over already", "status", string(out.record.Status), "generation", out.record.Generation)
	return nil
}

// wait makes the message visible again later, and writes into it since when the job waits. If
// storage permanently refuses a blob of the job, its record is released, unless that is the blob.
func (s *settlement) wait(ctx context.Context, out *outcome) error {
	if out.refusal != "" && s.own != nil && s.own.claim.Exists() && s.own.claim.Record().Status == checkpoint.Running {
		if err := s.releaseRecord(ctx, out); err != nil && checkpoint.PermanentRefusal(err) == "" {
			return err
		}
	}
	s.stopRenewing()
	if s.unclaimed { // its message stays as it was
		return s.lease.Release(s.cleanup, 0)
	}
	delay := cmp.Or(out.delay, s.waitTime())
	if err := s.lease.PutBack(s.cleanup, s.envelope, s.env.Stores.Payloads, delay); err != nil {
		return err
	}
	since := s.envelope.PutBackSince
	if since.IsZero() {
		since = s.lease.ClaimedAt // now is the first time
	}
	level := slog.LevelDebug
	due, leftOut := s.env.lines.putBack.Allow(s.envelope.Kind, time.Now())
	if due {
		level = slog.LevelInfo
	}
	s.log.Log(s.cleanup, level, "message deferred", "reason", out.reason, "since", since, "visible_in", delay, "suppressed", leftOut)
	if out.refusal != "" {
		s.log.ErrorContext(ctx, "job requeued: storage refuses a blob of it until somebody changes that", "code", out.refusal, "reason",
			out.reason)
	}
	return nil
}

// releaseMessage makes the job's message visible to all after delay. If another message
// replaced it, it is deleted. If it would expire, or the service no longer finds it, a new
// message replaces it now. The record is open by then, so this delivery was the owner, and
// without a message no worker would find the job.
func (s *settlement) releaseMessage(ctx context.Context, moved bool, delay time.Duration) error {
	if moved || s.replaced {
		return s.lease.Complete(s.cleanup)
	}
	if !s.mustReplace(ctx) {
		if err := s.lease.Release(s.cleanup, delay); err != nil || !s.lease.Gone() {
			return err
		}
	}
	if err := s.lease.Queue().PutMoved(s.cleanup, s.envelope, delay, s.env.Stores.Payloads); err != nil {
		return err
	}
	s.replaced = true
	if s.lease.Gone() {
		s.log.WarnContext(ctx, "message was removed or has expired; put a new one for the job")
		return nil
	}
	s.log.InfoContext(ctx, "message would expire; put a new one for the job", "expires", s.lease.ExpiresAt)
	return s.lease.Complete(s.cleanup)
}

// mustReplace reports whether the message is known to be gone, or expires. If
// another worker has the message by now, that worker replaces it.
func (s *settlement) mustReplace(ctx context.Context) bool {
	stop := job.StopOf(ctx)
	return s.lease.Gone() || !s.lease.ExpiresAt.IsZero() && (stop == nil || stop.Reason != job.Lost)
}

// reportLate reports a delivery that could not be handed over in time: its record has
// the last state that was saved.
func (s *settlement) reportLate(ctx context.Context, out *outcome, err error) (word string) {
	s.leftOut = true
	s.reportRun(interrupted)
	s.env.counters.late.Add(1)
	s.env.Observe(observe.Ended{Outcome: observe.EndedLeft})
	level := slog.LevelDebug
	due, suppressed := s.env.lines.late.Allow(s.envelope.Kind, time.Now())
	if due {
		level = slog.LevelError
	}
	s.log.Log(ctx, level, "no time left; the message becomes visible when its visibility timeout expires",
		"outcome", out.action.String(), "error", err, "suppressed", suppressed)
	return observe.EndedLeft
}

// reportOutcome counts the outcome of the delivery.
func (s *settlement) reportOutcome(out *outcome) (word string) {
	switch out.action {
	case commit:
		s.env.counters.committed.Add(1)
	case interrupted:
		s.env.counters.released.Add(1)
	default: // the log of a drain needs no other
	}
	if out.refusal != "" {
		s.env.Observe(observe.Refused{Code: out.refusal})
	}
	if s.leftOut {
		s.env.counters.leftOut.Add(1)
		s.env.Observe(observe.LeftOut{})
	}
	word = outcomeWords[out.action]
	if s.movedTo != nil && s.movedTo == s.env.Stores.OnDemand { // only a release moves a job
		word = observe.EndedMoved
	}
	s.reportRun(out.action)
	s.env.Observe(observe.Ended{Outcome: word})
	return word
}

// reportRun reports the outcome of the handler's time, the job if it is done, and its
// failure if it failed.
func (s *settlement) reportRun(did action) {
	tell := s.env.Observe
	kind := s.envelope.Kind
	if s.env.Kinds[kind] == nil {
		kind = observe.OtherKind
	}
	switch did {
	case commit:
		r := s.own.claim.Record()
		exits := max(r.Claims()-1-r.Interruptions-r.FailuresTotal, 0)
		s.env.running.Done(kind, s.runTime())
		s.env.runs.add(s.runTime())
		tell(observe.Committed{Kind: kind, SincePut: s.sincePut(), Ran: s.runTime(), Interruptions: r.Interruptions, Exits: exits})
	case retryLater, poison, reject:
		tell(observe.Failed{Kind: kind, Class: cmp.Or(s.failure, failureWithoutRun[did])})
	default: // no failure
	}
	if s.run == nil {
		return
	}
	took := s.run.watch.Elapsed()
	switch did {
	case commit:
		tell(observe.Spent{Kind: kind, Effort: observe.EffortCommitted, Took: took})
	case retryLater, poison:
		tell(observe.Spent{Kind: kind, Effort: observe.EffortFailed, Took: took})
	case interrupted:
		lost := s.lost()
		s.env.counters.lost.Add(int64(lost))
		tell(observe.Spent{Kind: kind, Effort: observe.EffortHandedOver, Took: max(took-lost, 0)})
		tell(observe.Spent{Kind: kind, Effort: observe.EffortRedone, Took: lost})
	default:
		tell(observe.Spent{Kind: kind, Effort: observe.EffortRedone, Took: took})
	}
}

// failureWithoutRun is why a job failed although its handler was not called.
var failureWithoutRun = map[action]string{retryLater: observe.FailedByError, poison: observe.FailedByExits, reject: observe.FailedMessage}

// reportFailures reports a job that failed so often in all that it may never end.
func (s *settlement) reportFailures() {
	if n := s.own.claim.Record().FailuresTotal; circles(n) {
		s.env.Observe(observe.Circles{Cause: observe.CirclesByFailures})
		s.log.Warn("job circles: it keeps failing although it makes progress",
			"failures_total", n, "poison_at", job.MaxTotalFailures, "fraction", s.own.claim.Record().Fraction)
	}
}

// reportBreaks reports a job that took so many breaks in a row that it may never
// end.
func (s *settlement) reportBreaks(out *outcome) {
	if n := s.own.claim.Record().Breaks; out.tookBreak && circles(n) {
		s.env.Observe(observe.Circles{Cause: observe.CirclesByBreaks})
		s.log.Warn("job circles: it keeps taking breaks and its fraction does not grow",
			"breaks", n, "poison_at", job.MaxBreaks, "fraction", s.own.claim.Record().Fraction)
	}
}
