package worker

import (
	"cmp"
	"context"
	"errors"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

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
	d.observeStart(record, restored != nil)
	d.log.InfoContext(ctx, "job started", "generation", record.Generation, "attempt", record.Failures+1, "resumed_at", record.Fraction,
		"enqueued_at", cmp.Or(d.envelope.EnqueuedAt, d.lease.InsertedAt))
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
		State: snapshot.State, Stream: snapshot.Stream, Version: snapshot.Version,
		Fraction: snapshot.Fraction, Text: snapshot.Text,
	}, outcome{}, true
}
