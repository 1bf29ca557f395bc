package worker

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// load makes the job as its handler sees it: its payload and its recorded state.
// The memory of a payload from a blob counts until the handler has dropped it or
// has returned.
func (d *delivery) load(ctx context.Context) (outcome, bool) {
	free, out, ok := d.reservePayload(ctx)
	if !ok {
		return out, false
	}
	payload, out, ok := d.fetchPayload(ctx)
	if !ok {
		free()
		return out, false
	}
	restored, out, ok := d.restoreState(ctx)
	if !ok {
		free()
		return out, false
	}
	record := d.claim.Record()
	d.saved, d.restored = restored, restored
	d.job = job.New(job.Spec{
		ID: d.envelope.ID, Kind: d.envelope.Kind, Payload: payload,
		Attempt: record.Failures + 1, Deadline: d.envelope.Deadline,
	}, restored)
	d.job.OnDropPayload(free)
	d.job.Cleanup(free)
	d.reportStart(record, restored != nil)
	d.log.InfoContext(ctx, "job started", "generation", record.Generation, "attempt", record.Failures+1, "resumed_at", record.Fraction,
		"enqueued_at", cmp.Or(d.envelope.EnqueuedAt, d.lease.InsertedAt))
	return outcome{}, true
}

// reservePayload waits until there is memory for the payload, if it is in a blob.
// The message is renewed meanwhile. free may be called more than once.
func (d *delivery) reservePayload(ctx context.Context) (free func(), out outcome, ok bool) {
	ref := d.envelope.Payload.Ref()
	if ref == nil || ref.Size > queue.MaxPayload {
		return func() {}, outcome{}, true
	}
	size := max(ref.Size, 0)
	if !d.payloadMemory.TryAcquire(size) {
		d.log.InfoContext(ctx, "job waits for memory: the payloads of other jobs take all of it (--payload-memory)", "payload_bytes", size)
		if err := d.payloadMemory.Acquire(ctx, size); err != nil {
			return nil, stopped(ctx, errors.New("wait for payload memory")), false
		}
	}
	return sync.OnceFunc(func() { d.payloadMemory.Release(size) }), outcome{}, true
}

// fetchPayload fetches what the job is to work on. A first delivery whose payload
// blob is gone may be a duplicate of a job that is done: the record tells.
func (d *delivery) fetchPayload(ctx context.Context) ([]byte, outcome, bool) {
	var payload []byte
	err := d.retry(ctx, "load the job's payload", func() (err error) {
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
		if out, ok := d.lookup(ctx); !ok {
			return nil, out, false
		}
	}
	return nil, outcome{action: poison, reason: err.Error()}, false
}

// restoreState reads the recorded state, nil on a fresh start.
func (d *delivery) restoreState(ctx context.Context) (*job.Progress, outcome, bool) {
	var snapshot *checkpoint.Snapshot
	err := d.retry(ctx, "restore the job's state", func() (err error) {
		snapshot, err = d.claim.Restore(ctx)
		return err
	})
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
	return &job.Progress{
		State: snapshot.State, Stream: snapshot.Stream, Version: snapshot.Version,
		Fraction: snapshot.Fraction, Text: snapshot.Text,
	}, outcome{}, true
}
