package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/job"
)

// acquisition acquires the record of a job.
type acquisition struct {
	msg         *message
	rec         *recorder
	cancels     *cancelCheck
	plan        *movePlan
	quarantined bool     // this delivery holds the worker's place for a quarantined job
	instead     *outcome // what happens instead of a run once the record is acquired; nil for a run
}

// acquire acquires the job's record. A first delivery reads nothing: its first write
// finds out whether the record exists. For an id that was chosen, and so may have
// been used, that write comes before the handler starts; a generated id needs none,
// unless jobs were cancelled since the message was put.
func (q *acquisition) acquire(ctx context.Context) *outcome {
	q.cancels.begin() // before the call that would show it
	switch {
	case q.msg.lease.Deliveries > 1, q.msg.envelope.Resume, !q.msg.idLock.First(), q.plan.waits:
		return q.lookup(ctx)
	case q.msg.envelope.ChosenID, q.msg.runner.mayBeCancelled(q.msg.lease.InsertedAt):
		return q.applyRuling(ctx, checkpoint.Record{}, checkpoint.Create)
	default:
		if out := q.msg.confirmLease(ctx); out != nil {
			return out
		}
		q.rec.claim = q.msg.runner.Stores.Records.Fresh(q.msg.ref(), q.msg.runner.owner)
		q.rec.setFacts(ctx)
		return nil
	}
}

// lookup reads the record, and acquires or creates it if the rules allow.
func (q *acquisition) lookup(ctx context.Context) *outcome {
	record, ruling, err := q.readRecord(ctx)
	if err != nil {
		return stopped(ctx, err)
	}
	return q.applyRuling(ctx, record, ruling)
}

// readRecord reads the record, and how the rules rule on it.
func (q *acquisition) readRecord(ctx context.Context) (record checkpoint.Record, ruling checkpoint.Ruling, err error) {
	err = q.msg.retry(ctx, "read the job's record", func() (err error) {
		record, ruling, err = q.msg.runner.Stores.Records.Lookup(ctx, q.msg.ref())
		return err
	})
	q.rec.found.written = time.Now().Add(record.ModifiedAt.Sub(record.ReadAt)) // both are the service's
	q.rec.found.open = record.Status == checkpoint.Open
	return record, ruling, err
}

// applyRuling acquires or creates the record that was found if the rules allow.
func (q *acquisition) applyRuling(ctx context.Context, record checkpoint.Record, ruling checkpoint.Ruling) *outcome {
	if ruling == checkpoint.Create || ruling == checkpoint.Acquire {
		if out := q.plan.staysWaiting(record); out != nil {
			return out
		}
		if out := q.msg.confirmLease(ctx); out != nil {
			return out
		}
	}
	switch ruling {
	case checkpoint.Create:
		return q.acquireRecord(ctx, func() (*checkpoint.Claim, error) {
			return q.msg.runner.Stores.Records.Create(ctx, q.takeover(checkpoint.Record{}), q.msg.runner.owner)
		})
	case checkpoint.Acquire:
		if out := q.mayStart(ctx, record); out != nil {
			return out
		}
		out := q.acquireRecord(ctx, func() (*checkpoint.Claim, error) {
			return q.msg.runner.Stores.Records.Acquire(ctx, q.takeover(record), record, q.msg.runner.owner)
		})
		if out == nil {
			out = q.instead
		}
		return out
	default:
		return ruled(ruling, record)
	}
}

// mayStart returns an outcome if this worker may not start the job of a record that it may
// acquire.
// A job that only moves is not started.
func (q *acquisition) mayStart(ctx context.Context, record checkpoint.Record) *outcome {
	if q.plan.waits {
		return nil
	}
	if out := q.leaveToOthers(record); out != nil {
		return out
	}
	if out := q.checkNeeds(ctx, record); out != nil {
		return out
	}
	return q.enterQuarantine(record)
}

// acquireRecord acquires the record. The first try makes the claim; further ones
// repeat its write, which settles whether the one before took effect.
func (q *acquisition) acquireRecord(ctx context.Context, claim func() (*checkpoint.Claim, error)) *outcome {
	err := q.msg.retry(ctx, "acquire the job's record", func() (err error) {
		if q.rec.claim == nil {
			q.rec.claim, err = claim()
			q.rec.setFacts(ctx)
			return err
		}
		return q.rec.claim.Touch(ctx, checkpoint.Snapshot{})
	})
	if conflict := asConflict(err); conflict != nil {
		return outcomeOf(conflict)
	}
	if err != nil {
		return stopped(ctx, err)
	}
	if r := q.rec.claim.Record(); exhausted(r.ChargedExits, r.EarlyExits) != "" {
		return &outcome{action: poison, reason: exhausted(r.ChargedExits, r.EarlyExits)}
	}
	return nil
}

// unmetFor is how long a job waits for a worker that meets the needs of its state before it
// is dead-lettered, if no worker is known to have met them in that time. The state stays: a replay
// waits again, and a replay from scratch begins without it.
const unmetFor = 24 * time.Hour

// unmetLook is how long a worker must have run to dead-letter such a job: after a pause of the
// whole fleet, other workers start too.
const unmetLook = 15 * time.Minute

// checkNeeds leaves a job to other workers if its recorded state needs another machine. It
// reads nothing of the state. It sets q.instead for a job that may miss its deadline meanwhile and
// moves, and for a job that waited for unmetFor and is dead-lettered.
func (q *acquisition) checkNeeds(ctx context.Context, found checkpoint.Record) *outcome {
	if found.StateNeeds == "" { // as in a record without a state
		return nil
	}
	kind, id := q.msg.envelope.Kind, q.msg.envelope.ID
	handler := q.msg.runner.Kinds[kind]
	err := job.CheckNeeds(handler, found.StateNeeds)
	if err == nil {
		q.msg.runner.unlike.Found(kind, id)
		return nil
	}
	seen := q.whoMeets(ctx, found.StateNeeds, job.Offer(handler))
	waited := time.Since(q.rec.found.written)
	if q.instead = q.unmetOutcome(ctx, found, seen, waited, err); q.instead != nil {
		q.msg.runner.unlike.Found(kind, id)
		return nil
	}
	delay := unmetDelay(seen.meets, waited)
	if seen.meets == presence.HasIt {
		delay = max(delay, q.msg.runner.deferred.next(time.Now(), seen.unlike))
	}
	delay = q.msg.runner.Jitter.Vary(delay)
	if seen.meets == presence.HasNot {
		q.msg.runner.unlike.Hide(kind, id, time.Now(), delay)
	} else {
		q.msg.runner.unlike.Found(kind, id)
	}
	if due, leftOut := q.msg.runner.lines.putBack.Allow(kind, time.Now()); due && seen.meets != presence.HasIt {
		q.msg.log.WarnContext(ctx, "job waits for a worker that meets the needs of its state", "reason", err, "since", q.rec.found.written,
			"visible_in", delay, "suppressed", leftOut)
	}
	q.msg.envelope = q.msg.lease.ClearPutBack(q.msg.envelope)
	return &outcome{action: requeue, reason: err.Error(), delay: delay, unfit: true}
}

// unmetOutcome returns what happens to a job that waited for a worker that meets the needs of its
// state, nil if it waits on. unmet is why this worker does not meet them.
func (q *acquisition) unmetOutcome(ctx context.Context, found checkpoint.Record, seen matches, waited time.Duration, unmet error) *outcome {
	if (seen.meets == presence.HasNot || waited >= maxKindDelay) && q.plan.movesUnmet(ctx, found) {
		return &outcome{action: interrupted, reason: q.plan.verdict.Why}
	}
	if seen.meets != presence.HasNot || seen.lately || waited < unmetFor || time.Since(q.msg.runner.Started) < unmetLook {
		return nil
	}
	return &outcome{action: poison, reason: fmt.Sprintf("no live worker of queue %s has been known to meet the needs of its state for %s: "+
		"%v; start a worker that does and replay it, or start over with spotctl poison replay --from-scratch", q.msg.lease.Queue().Name(),
		unmetFor, unmet)}
}

// matches says which other workers meet the needs of a state.
type matches struct {
	meets  presence.Has // whether a live worker does
	unlike int          // how many live workers do not, this worker included
	lately bool         // a worker did within unmetFor
}

// whoMeets returns which other workers meet the needs of a state, by their first word. Where
// this worker offers that word too and still cannot continue, the word of another worker proves
// nothing.
func (q *acquisition) whoMeets(ctx context.Context, needs, own string) (m matches) {
	seen, err := q.msg.runner.Fleet.Sample(ctx, sampleEvery)
	if err != nil {
		q.msg.log.Log(ctx, outage.Level(err, slog.LevelWarn), "heartbeats not listed; another worker may run this kind of job", "error", err)
		return matches{meets: presence.MayHave, unlike: 1}
	}
	kind, queue, now := q.msg.envelope.Kind, q.msg.lease.Queue().Name(), time.Now()
	m.meets, m.unlike = seen.whoMeets(kind, queue, needs, q.msg.runner.owner, now)
	if own != presence.OfferFor(needs) {
		m.lately = seen.metLately(kind, queue, needs, q.msg.runner.owner, now, unmetFor)
	} else if m.meets == presence.HasIt {
		m.meets = presence.HasNot
	}
	return m
}

// unmetDelay returns how long to hide a message for other workers: longer the longer its job
// waits. Where a worker meets the needs, it is probably busy.
func unmetDelay(meets presence.Has, waited time.Duration) time.Duration {
	if meets == presence.HasIt {
		return min(max(waited/16, minDefer), maxKindDelay)
	}
	return min(max(waited/4, minKindDelay), maxDefer)
}

// takeover describes the delivery to the record that it acquires: how late it found the
// record of the owner before, and when it will write again.
func (q *acquisition) takeover(found checkpoint.Record) checkpoint.Delivery {
	ref := q.msg.ref()
	ref.NextWrite = q.msg.runner.Policy.Expected(checkpoint.Situation{
		Written: true, Losses: q.msg.runner.Losses.Losses(), Unproven: found.Status == checkpoint.Running && !found.Progressed,
	}, 0)
	if found.MessageID == ref.MessageID {
		visibility, renewEvery := q.msg.runner.renewals.Visibility()
		ref.Takeover = ledger.Takeover{Claimed: q.msg.lease.AskedAt.Sub(q.rec.found.written), Visibility: visibility, RenewEvery: renewEvery}
	}
	return ref
}

// cancelCheck checks whether a job was cancelled. The control document announces that
// operators cancelled jobs; only the job's record says whether this job was.
type cancelCheck struct {
	rec     *recorder
	checked atomic.Pointer[time.Time] // cancellations up to here are known not to concern the job
	retryAt time.Time                 // the record is not read before, after a read failed
}

// begin begins the check before the call that would show a cancellation announced so far.
func (c *cancelCheck) begin() {
	c.checked.Store(new(c.rec.msg.runner.cancelledAt(c.rec.msg.envelope.ID)))
}

// check reads the job's record if an operator has announced since the last time that the job,
// or any, was cancelled. It stops the job and returns the conflict if this delivery no longer
// owns the record, for that or another reason. A read that fails is tried again.
func (c *cancelCheck) check(ctx context.Context) *checkpoint.ConflictError {
	announced := c.rec.msg.runner.cancelledAt(c.rec.msg.envelope.ID)
	if !announced.After(*c.checked.Load()) || time.Now().Before(c.retryAt) || ctx.Err() != nil {
		return nil //nolint:nilerr // a job that is stopped needs no check
	}
	err := c.rec.claim.Check(ctx)
	conflict := asConflict(err)
	switch {
	case conflict != nil:
		c.rec.stopForConflict(ctx, conflict)
	case err != nil:
		c.rec.msg.log.Log(ctx, outage.Level(err, slog.LevelWarn), "cannot read whether the job was cancelled; trying again", "error", err,
			"retry_in", recheckEvery)
		c.retryAt = time.Now().Add(recheckEvery)
	default:
		c.checked.Store(&announced)
	}
	return conflict
}

// confirmOwnership returns an error if the job is known not to be this delivery's: it was
// stopped for that, or an operator announced cancellations and its record shows one. A
// handler may ignore its context.
func (c *cancelCheck) confirmOwnership(ctx context.Context) error {
	if stop := job.StopOf(c.rec.msg.stoppable); stop != nil && (stop.Reason == job.Cancelled || stop.Reason == job.Fenced ||
		stop.Reason == job.Lost) {
		return stop
	}
	if !c.rec.msg.runner.cancelledAt(c.rec.msg.envelope.ID).After(*c.checked.Load()) {
		return nil
	}
	return c.rec.claim.Check(ctx)
}

// stopForConflict stops the job because this delivery no longer owns its record.
func (r *recorder) stopForConflict(ctx context.Context, conflict *checkpoint.ConflictError) {
	if by := conflict.Record; by.Status == checkpoint.Cancelled {
		r.msg.log.InfoContext(ctx, "job was cancelled; stopping it", "cancelled_by", by.Owner, "reason", by.Reason)
		r.output.LeaveRecord()
		r.msg.stopJob(job.Cancelled, fmt.Errorf("by %s: %s", by.Owner, by.Reason))
	} else {
		r.msg.log.WarnContext(ctx, "another worker owns the job now; stopping it here", "error", conflict)
		r.msg.stopJob(job.Fenced, conflict)
	}
}
