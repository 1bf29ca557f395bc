package delivery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/inputs/named"
	"github.com/spotworker/spotworker/internal/ledger"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/renewal"
	"github.com/spotworker/spotworker/job"
)

// recover acquires the job's record. A first delivery reads nothing: its first write
// finds out whether the record exists. For an id that was chosen, and so may have
// been used, that write comes before the handler starts; a generated id needs none,
// unless jobs were cancelled since the message was put.
func (d *Delivery) recover(ctx context.Context) (outcome, bool) {
	d.cancelChecked = d.runner.cancelledAt(d.envelope.ID) // before the call that would show it
	switch {
	case d.lease.Deliveries > 1, d.envelope.Resume, !d.idLock.First():
		return d.lookup(ctx)
	case d.envelope.ChosenID, d.runner.mayBeCancelled(d.lease.InsertedAt):
		return d.applyRuling(ctx, checkpoint.Record{}, checkpoint.Create)
	default:
		if out, ok := d.confirmLease(ctx); !ok {
			return out, false
		}
		d.claim = d.account.records.Fresh(d.ref(), d.runner.owner)
		d.claim.KeepLedger(func() ledger.Delivery { return d.spent(ctx) })
		return outcome{}, true
	}
}

// confirmLease makes sure that the message is still claimed by this delivery. It
// renews a message whose visibility timeout may have expired since the last answer,
// because the delivery waited for too long or its process or VM was frozen: another
// worker may run the job by now, and only the service knows.
//
// It comes between the read of a record and the write that acquires it. A record that
// was read while the message was hidden does not belong to a later delivery, and one
// that changed after that has another ETag.
func (d *Delivery) confirmLease(ctx context.Context) (outcome, bool) {
	var lost error
	err := d.retry(ctx, "renew a message whose visibility may have expired", func() error {
		if !d.lease.Expired(time.Now()) {
			return nil
		}
		visibility, _ := d.account.renewals.Visibility()
		ctx, cancel := context.WithTimeout(ctx, renewal.Timeout)
		defer cancel()
		err := d.lease.Renew(ctx, visibility)
		if errors.Is(err, queue.ErrLost) {
			lost, err = err, nil
		}
		return err
	})
	switch {
	case err != nil:
		return stopped(ctx, err), false
	case lost != nil:
		return outcome{action: drop, reason: fmt.Sprintf("the visibility expired before the job began, and another worker may have it: %v", lost)}, false
	}
	return outcome{}, true
}

// lookup reads the record, and acquires or creates it if the rules allow.
func (d *Delivery) lookup(ctx context.Context) (outcome, bool) {
	record, ruling, err := d.readRecord(ctx)
	if err != nil {
		return stopped(ctx, err), false
	}
	return d.applyRuling(ctx, record, ruling)
}

// readRecord reads the record, and how the rules rule on it.
func (d *Delivery) readRecord(ctx context.Context) (record checkpoint.Record, ruling checkpoint.Ruling, err error) {
	err = d.retry(ctx, "read the job's record", func() (err error) {
		record, ruling, err = d.account.records.Lookup(ctx, d.ref())
		return err
	})
	d.recordWritten = time.Now().Add(record.ModifiedAt.Sub(record.ReadAt)) // both are the service's
	d.foundOpen = record.Status == checkpoint.Open
	return record, ruling, err
}

// duplicate is the outcome of a delivery whose job this worker is running for another
// message: the handler is never started twice at once. If the job is over by now, its
// message is removed.
func (d *Delivery) duplicate(ctx context.Context) outcome {
	record, ruling, err := d.readRecord(ctx)
	switch {
	case err != nil:
		return stopped(ctx, err)
	case ruling == checkpoint.Create, ruling == checkpoint.Acquire:
		return outcome{action: putBack, reason: "this worker is running the job already: a duplicate"}
	default:
		return ruled(ruling, record)
	}
}

// applyRuling acquires or creates the record that was found if the rules allow.
func (d *Delivery) applyRuling(ctx context.Context, record checkpoint.Record, ruling checkpoint.Ruling) (outcome, bool) {
	if ruling == checkpoint.Create || ruling == checkpoint.Acquire {
		if out, ok := d.confirmLease(ctx); !ok {
			return out, false
		}
	}
	switch ruling {
	case checkpoint.Create:
		return d.acquireRecord(ctx, func() (*checkpoint.Claim, error) {
			return d.account.records.Create(ctx, d.takeover(checkpoint.Record{}), d.runner.owner)
		})
	case checkpoint.Acquire:
		if out, yes := d.leaveToOthers(record); yes {
			return out, false
		}
		if out, ok := d.admit(record); !ok {
			return out, false
		}
		return d.acquireRecord(ctx, func() (*checkpoint.Claim, error) {
			return d.account.records.Acquire(ctx, d.takeover(record), record, d.runner.owner)
		})
	default:
		return ruled(ruling, record), false
	}
}

// acquireRecord acquires the record. The first try makes the claim; further ones
// repeat its write, which settles whether the one before took effect.
func (d *Delivery) acquireRecord(ctx context.Context, claim func() (*checkpoint.Claim, error)) (outcome, bool) {
	err := d.retry(ctx, "acquire the job's record", func() (err error) {
		if d.claim == nil {
			d.claim, err = claim()
			d.claim.KeepLedger(func() ledger.Delivery { return d.spent(ctx) })
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
	if r := d.claim.Record(); exhausted(r.ChargedExits, r.EarlyExits) != "" {
		return outcome{action: poison, reason: exhausted(r.ChargedExits, r.EarlyExits)}, false
	}
	return outcome{}, true
}

// stopped is the outcome of a delivery that was stopped before its handler was called,
// or that storage permanently refuses. err says what it was waiting for.
func stopped(ctx context.Context, err error) outcome {
	if ctx.Err() == nil && checkpoint.PermanentRefusal(err) != "" {
		return refusedOutcome(err)
	}
	return outcome{action: interrupted, reason: fmt.Sprintf("%v, before it began: %v", drain.StopOf(ctx), err)}
}

// load makes the job as its handler sees it: its payload and its recorded state. The
// memory of a payload from a blob is reserved until the handler drops it or returns.
func (d *Delivery) load(ctx context.Context) (outcome, bool) {
	free, out, ok := d.reservePayload(ctx)
	if !ok {
		return out, false
	}
	out, ok = d.loadInto(ctx, free)
	if !ok && free != nil {
		free()
	}
	return out, ok
}

// loadInto is load into the memory that free frees; nil for a payload that is in the
// message.
func (d *Delivery) loadInto(ctx context.Context, free func()) (outcome, bool) {
	payload, out, ok := d.fetchPayload(ctx)
	if !ok {
		return out, false
	}
	restored, out, ok := d.restoreState(ctx)
	if !ok {
		return out, false
	}
	record := d.claim.Record()
	restored = d.lastAttempt(ctx, record, restored)
	d.saved, d.restored = restored, restored
	d.handlerSpan = d.span.Step("handler")
	d.job = job.New(job.Spec{
		ID: d.envelope.ID, Kind: d.envelope.Kind, Payload: payload, Trace: d.handlerSpan.Parent(d.envelope.Trace),
		Attempt: record.Failures + 1, Deadline: d.envelope.Deadline,
	}, restored)
	if d.inputs != nil {
		d.job.SetInputs(d.inputs.Folder, d.inputs.Files)
		d.job.Cleanup(d.releaseInputs)
	}
	if free != nil {
		d.job.OnDropPayload(free)
		d.job.Cleanup(free)
	}
	d.job.OnPut(d.putFollowUp)
	if d.steppedBack {
		d.job.SetSteppedBack(restored)
	} else if d.keepsPrevious {
		d.job.OnStepBack(func() (*job.Progress, error) { return d.stepBack(ctx, "its handler cannot use the last one") })
	}
	if out, ok := d.openOutputs(ctx); !ok {
		return out, false
	}
	d.jobLog = d.openLog(record)
	d.reportStart(record, restored != nil)
	d.log.InfoContext(ctx, "job started", "generation", record.Generation, "attempt", record.Failures+1, "resumed_at", record.Fraction,
		"enqueued_at", cmp.Or(d.envelope.EnqueuedAt, d.lease.InsertedAt))
	return outcome{}, true
}

// reservePayload waits for memory for the payload, if that is in a blob. The message
// is renewed while it waits. free may be called more than once; it is nil for a payload that
// is in the message.
func (d *Delivery) reservePayload(ctx context.Context) (free func(), out outcome, ok bool) {
	ref := d.envelope.Payload.Ref()
	if ref == nil || ref.Size > queue.MaxPayload {
		return nil, outcome{}, true
	}
	size := max(ref.Size, 0)
	if !d.runner.payloadMemory.TryAcquire(size) {
		d.log.InfoContext(ctx, "job waits for memory: the payloads of other jobs take all of it (--payload-memory)", "payload_bytes", size)
		if err := d.runner.payloadMemory.Acquire(ctx, size); err != nil {
			return nil, stopped(ctx, errors.New("wait for payload memory")), false
		}
	}
	return sync.OnceFunc(func() { d.runner.payloadMemory.Release(size) }), outcome{}, true
}

// fetchPayload fetches the payload. A first delivery whose payload blob is gone may be
// a duplicate of a job that is done: the record shows that.
func (d *Delivery) fetchPayload(ctx context.Context) ([]byte, outcome, bool) {
	var payload []byte
	err := d.retry(ctx, "load the job's payload", func() (err error) {
		payload, err = d.account.payloads.Load(ctx, d.envelope)
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
		if out, ok := d.lookup(ctx); !ok {
			return nil, out, false
		}
	}
	return nil, outcome{action: poison, reason: err.Error()}, false
}

// restoreState reads the recorded state, nil on a fresh start.
func (d *Delivery) restoreState(ctx context.Context) (*job.Progress, outcome, bool) {
	var snapshot *checkpoint.Snapshot
	err := d.retry(ctx, "restore the job's state", func() (err error) {
		if d.keepsPrevious {
			if err := d.claim.KeepPrevious(ctx); err != nil {
				return err
			}
		}
		snapshot, err = d.claim.Restore(ctx)
		return err
	})
	if errors.Is(err, checkpoint.ErrDamaged) {
		if previous, _ := d.stepBack(ctx, err.Error()); previous != nil {
			d.steppedBack = true
			return previous, outcome{}, true
		}
	}
	switch conflict := asConflict(err); {
	case conflict != nil:
		return nil, outcomeOf(conflict), false
	case errors.Is(err, checkpoint.ErrDamaged):
		return nil, decide(ended{err: err}, d.claim.After(checkpoint.Snapshot{}), d.jobLimits), false
	case err != nil:
		return nil, stopped(ctx, err), false
	case snapshot == nil:
		return nil, outcome{}, true
	}
	return progressOf(snapshot), outcome{}, true
}

func progressOf(s *checkpoint.Snapshot) *job.Progress {
	return &job.Progress{State: s.State, Stream: s.Stream, Version: s.Version, Fraction: s.Fraction, Text: s.Text}
}

// lastAttempt returns the state from which the attempt continues: before a job is
// dead-lettered because its attempts from the last state failed, it gets one from the state
// before that, if its kind keeps it.
func (d *Delivery) lastAttempt(ctx context.Context, r checkpoint.Record, restored *job.Progress) *job.Progress {
	if d.steppedBack || r.Failures == 0 || r.Failures+1 < d.jobLimits.WithDefaults().MaxFailures {
		return restored
	}
	previous, err := d.stepBack(ctx, "this is its last attempt, and those from the last state failed without progress")
	if err != nil {
		d.log.WarnContext(ctx, "state before the last not restored; the job resumes from the last one", "error", err)
	}
	if previous == nil {
		return restored
	}
	d.steppedBack = true
	return previous
}

// stepBack returns the state before the last one, or nil if there is none. From then on the
// next save replaces the last one.
func (d *Delivery) stepBack(ctx context.Context, why string) (*job.Progress, error) {
	if !d.keepsPrevious {
		return nil, nil
	}
	snapshot, err := d.claim.StepBack(ctx)
	if err != nil || snapshot == nil {
		return nil, err
	}
	d.runner.observer.SteppedBack()
	d.log.WarnContext(ctx, "job resumes from the state before the last", "reason", why, "bytes", d.claim.Record().Previous.Size)
	return progressOf(snapshot), nil
}

// reportStart reports that the handler is about to be called.
func (d *Delivery) reportStart(record checkpoint.Record, resumed bool) {
	observer := d.runner.observer
	switch {
	case resumed:
		observer.Started(startedResumed)
	case record.Generation > 1:
		observer.Started(startedAgain)
	default:
		observer.Started(startedFirst)
	}
	switch waited := max(time.Since(d.recordWritten), 0); {
	case record.Generation <= 1:
		observer.Waited(afterPut, d.sincePut())
	case !d.foundOpen:
		observer.Waited(afterExit, waited)
	case record.Failures > 0:
		observer.Waited(afterFailure, waited)
	default:
		observer.Waited(afterRelease, waited)
	}
}

// putFollowUp puts a follow-up job of this one on the queue of jobs. Its id may have
// been put before, by an earlier run of the handler.
func (d *Delivery) putFollowUp(ctx context.Context, id string, f job.FollowUp) error {
	e := queue.Envelope{
		ID: id, Kind: f.Kind, EnqueuedAt: time.Now().UTC(), Deadline: f.Deadline, Estimate: f.Estimate, Trace: d.handlerSpan.Parent(d.envelope.Trace), ChosenID: true,
	}
	var err error
	switch data := f.Payload.(type) {
	case json.RawMessage:
		e.Payload, err = queue.JSONPayload(data)
	case []byte:
		e.Payload = queue.BytesPayload(data)
	}
	if err == nil {
		e.Inputs, err = named.Encode(f.Inputs)
	}
	if err == nil {
		err = validateFollowUp(e, f.Delay)
	}
	if err != nil {
		return job.Permanent(err)
	}
	to, err := d.runner.place(e.ID)
	if err != nil {
		return job.Unavailable(err)
	}
	if err := to.PutAny(ctx, e, f.Delay, d.runner.accounts[to.Account()].payloads); err != nil {
		return job.Unavailable(err)
	}
	d.log.InfoContext(ctx, "follow-up job put", "follow_up_id", id, "follow_up_kind", f.Kind, "name", f.Name)
	return nil
}

// validateFollowUp returns why a follow-up job can never be put.
func validateFollowUp(e queue.Envelope, delay time.Duration) error {
	if delay < 0 || delay > queue.MaxDelay {
		return fmt.Errorf("delay %s: it must be between 0 and %s", delay, queue.MaxDelay)
	}
	if data, _ := e.Payload.Inline(); len(data) > queue.MaxPayload {
		return fmt.Errorf("payload has %d bytes; at most %d are allowed: put the data in a blob and name it in the payload", len(data), queue.MaxPayload)
	}
	return e.Validate()
}
