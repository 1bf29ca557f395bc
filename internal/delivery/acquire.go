package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/job"
)

// owned is a job whose record this delivery owns, or creates with its next write.
type owned struct {
	*claimed
	claim       *checkpoint.Claim
	written     time.Time // when the record that it found was last written, by the local clock
	wasOpen     bool      // the record that it found was open
	quarantined bool      // it holds the worker's place for a quarantined job
	inputsHash  string    // the hash of the resolved inputs; empty before

	cancelsChecked atomic.Pointer[time.Time] // cancellations up to here are known not to concern the job
	checkAgainAt   time.Time                 // the record is not read for them before, after a read failed
	accountedAt    atomic.Int64              // when the ledger was last asked for, in nanoseconds from begun; 0 for never
}

// found is the record as this delivery found it.
type found struct {
	record  checkpoint.Record
	ruling  checkpoint.Ruling
	written time.Time // when it was last written, by the local clock
}

// mayBeOwned reports whether this delivery may acquire or create the record.
func (f *found) mayBeOwned() bool {
	return f.ruling == checkpoint.Create || f.ruling == checkpoint.Acquire
}

// acquire acquires the job's record. A first delivery reads nothing: its first write
// finds out whether the record exists. For an id that was chosen, and so may have
// been used, that write comes before the handler starts; a generated id needs none,
// unless jobs were cancelled since the message was put.
func (c *claimed) acquire(ctx context.Context) (o *owned, out *outcome) {
	cancels := c.env.cancelledAt(c.envelope.ID) // before the call that would show it
	defer func() {
		if o != nil {
			o.cancelsChecked.Store(&cancels)
		}
	}()
	switch {
	case c.lease.Deliveries > 1, c.envelope.Resume, !c.idLock.First(), c.unclaimed:
		return c.lookupAndOwn(ctx)
	case c.envelope.ChosenID, c.env.mayBeCancelled(c.lease.InsertedAt):
		return c.own(ctx, &found{ruling: checkpoint.Create})
	}
	if out := c.confirmLease(ctx); out != nil {
		return nil, out
	}
	return &owned{claimed: c, claim: c.env.Stores.Records.Fresh(c.ref(), c.env.owner)}, nil
}

// lookupAndOwn reads the record, and acquires or creates it if the rules allow.
func (c *claimed) lookupAndOwn(ctx context.Context) (*owned, *outcome) {
	f, err := c.lookup(ctx)
	if err != nil {
		return nil, stopped(ctx, err)
	}
	return c.own(ctx, f)
}

// lookup reads the record, and how the rules rule on it.
func (c *claimed) lookup(ctx context.Context) (*found, error) {
	f := &found{}
	err := c.retry(ctx, "read the job's record", func() (err error) {
		f.record, f.ruling, err = c.env.Stores.Records.Lookup(ctx, c.ref())
		return err
	})
	f.written = time.Now().Add(f.record.ModifiedAt.Sub(f.record.ReadAt)) // both are the service's
	return f, err
}

// own acquires or creates the record that was found if the rules allow, also of a job that then
// moves or is dead-lettered instead of a run.
func (c *claimed) own(ctx context.Context, f *found) (*owned, *outcome) {
	if !f.mayBeOwned() {
		return nil, ruled(f.ruling, f.record)
	}
	var instead *outcome
	if c.unclaimed {
		if instead = c.movesWaiting(f.record); instead == nil {
			return nil, c.later(NotRun, "it was to move, and need not")
		}
	}
	if out := c.confirmLease(ctx); out != nil {
		return nil, out
	}
	quarantined := false
	if !c.unclaimed { // a job that only moves is not started
		if instead = c.eligible(ctx, f); instead != nil && instead.action == wait {
			return nil, instead
		}
		var out *outcome
		if quarantined, out = c.enterQuarantine(f); out != nil {
			return nil, out
		}
	}
	o, out := c.write(ctx, f)
	o.quarantined = quarantined
	if out == nil {
		out = instead
	}
	if out != nil {
		return nil, o.ends(out)
	}
	return o, nil
}

// ends returns the outcome of a job whose record this delivery owns, or may own.
func (o *owned) ends(out *outcome) *outcome {
	out.own = o
	return out
}

// write writes that this delivery owns the record. The first try makes the claim; further ones
// repeat its write, which settles whether the one before took effect. The job is returned in any
// case: a write without an answer may have taken effect.
func (c *claimed) write(ctx context.Context, f *found) (o *owned, out *outcome) {
	err := c.retry(ctx, "acquire the job's record", func() (err error) {
		if o != nil {
			return o.claim.Touch(ctx, checkpoint.Snapshot{})
		}
		var claim *checkpoint.Claim
		if f.ruling == checkpoint.Create {
			claim, err = c.env.Stores.Records.Create(ctx, c.takeover(&found{}), c.env.owner)
		} else {
			claim, err = c.env.Stores.Records.Acquire(ctx, c.takeover(f), f.record, c.env.owner)
		}
		o = &owned{claimed: c, claim: claim, written: f.written, wasOpen: f.record.Status == checkpoint.Open}
		claim.SetFacts(o.facts)
		return err
	})
	if conflict := asConflict(err); conflict != nil {
		return o, outcomeOf(conflict)
	}
	if err != nil {
		return o, stopped(ctx, err)
	}
	if r := o.claim.Record(); exhausted(r.ChargedExits, r.EarlyExits) != "" {
		return o, &outcome{action: poison, reason: exhausted(r.ChargedExits, r.EarlyExits)}
	}
	return o, nil
}

// takeover describes the delivery to the record that it acquires: how late it found the
// record of the owner before, and when it will write again.
func (c *claimed) takeover(f *found) checkpoint.Delivery {
	ref := c.ref()
	ref.NextWrite = c.env.Policy.Expected(checkpoint.Situation{
		Written: true, Losses: c.env.Losses.Losses(), Unproven: f.record.Status == checkpoint.Running && !f.record.Progressed,
	}, 0)
	if f.record.MessageID == ref.MessageID {
		visibility, renewEvery := c.env.renewals.Visibility()
		ref.Takeover = ledger.Takeover{Claimed: c.lease.AskedAt.Sub(f.written), Visibility: visibility, RenewEvery: renewEvery}
	}
	return ref
}

// stopped is the outcome of a delivery that was stopped before its handler was called,
// or that storage permanently refuses. err names the call that it waited for.
func stopped(ctx context.Context, err error) *outcome {
	if ctx.Err() == nil && checkpoint.PermanentRefusal(err) != "" {
		return refusedOutcome(err)
	}
	return &outcome{action: interrupted, reason: fmt.Sprintf("%v, before it began: %v", drain.StopOf(ctx), err)}
}

// checkCancelled reads the job's record if an operator has announced since the last time that the
// job, or any, was cancelled. The control document announces that operators cancelled jobs; only
// the job's record says whether this job was. It returns the conflict if this delivery no longer
// owns the record, for that or another reason. A read that fails is tried again.
func (o *owned) checkCancelled(ctx context.Context) *checkpoint.ConflictError {
	announced := o.env.cancelledAt(o.envelope.ID)
	if !announced.After(*o.cancelsChecked.Load()) || time.Now().Before(o.checkAgainAt) || ctx.Err() != nil {
		return nil //nolint:nilerr // a job that is stopped needs no check
	}
	err := o.claim.Check(ctx)
	conflict := asConflict(err)
	switch {
	case conflict != nil:
	case err != nil:
		o.log.Log(ctx, outage.Level(err, slog.LevelWarn), "cannot read whether the job was cancelled; trying again", "error", err,
			"retry_in", recheckEvery)
		o.checkAgainAt = time.Now().Add(recheckEvery)
	default:
		o.cancelsChecked.Store(&announced)
	}
	return conflict
}

// confirmOwnership returns an error if the job is known not to be this delivery's: it was
// stopped for that, or an operator announced cancellations and its record shows one. A
// handler may ignore its context.
func (o *owned) confirmOwnership(ctx context.Context) error {
	if stop := job.StopOf(o.stoppable); stop != nil && (stop.Reason == job.Cancelled || stop.Reason == job.Fenced ||
		stop.Reason == job.Lost) {
		return stop
	}
	if !o.env.cancelledAt(o.envelope.ID).After(*o.cancelsChecked.Load()) {
		return nil
	}
	return o.claim.Check(ctx)
}

// stopForConflict stops the job because this delivery no longer owns its record.
func (o *owned) stopForConflict(ctx context.Context, conflict *checkpoint.ConflictError) {
	if by := conflict.Record; by.Status == checkpoint.Cancelled {
		o.log.InfoContext(ctx, "job was cancelled; stopping it", "cancelled_by", by.Owner, "reason", by.Reason)
		o.stopJob(job.Cancelled, fmt.Errorf("by %s: %s", by.Owner, by.Reason))
	} else {
		o.log.WarnContext(ctx, "another worker owns the job now; stopping it here", "error", conflict)
		o.stopJob(job.Fenced, conflict)
	}
}

// stopForConflict stops the job as [owned.stopForConflict] does. The log of a cancelled job belongs
// into its blob: the record is no longer written.
func (l *loaded) stopForConflict(ctx context.Context, conflict *checkpoint.ConflictError) {
	if conflict.Record.Status == checkpoint.Cancelled {
		l.output.LeaveRecord()
	}
	l.owned.stopForConflict(ctx, conflict)
}
