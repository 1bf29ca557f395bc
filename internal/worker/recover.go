package worker

import (
	"context"
	"fmt"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// recover makes the job's record this delivery's to write. A first delivery
// reads nothing: its first write finds out whether someone was before it. For an
// id that was chosen, and so may have been used, that write comes before the
// handler starts; a new id needs none.
func (d *delivery) recover(ctx context.Context) (outcome, bool) {
	switch {
	case d.lease.Deliveries > 1, d.envelope.Resume, !d.hold.first():
		return d.look(ctx)
	case d.envelope.ChosenID:
		return d.acquire(ctx, checkpoint.Record{}, checkpoint.Create)
	default:
		d.claim = d.Records.Fresh(d.ref(), d.owner)
		return outcome{}, true
	}
}

// look reads the record, and claims or creates it if the rules say so.
func (d *delivery) look(ctx context.Context) (outcome, bool) {
	record, ruling, err := d.find(ctx)
	if err != nil {
		return stopped(ctx, err), false
	}
	return d.acquire(ctx, record, ruling)
}

// find reads the record and what the rules say of it.
func (d *delivery) find(ctx context.Context) (record checkpoint.Record, ruling checkpoint.Ruling, err error) {
	err = d.insist(ctx, "read the job's record", func() (err error) {
		record, ruling, err = d.Records.Look(ctx, d.ref())
		return err
	})
	return record, ruling, err
}

// duplicate is the outcome of a delivery whose id this worker is running for
// another message: its handler is never started beside the other. If the job is
// over by now, the message is finished.
func (d *delivery) duplicate(ctx context.Context) outcome {
	record, ruling, err := d.find(ctx)
	switch {
	case err != nil:
		return stopped(ctx, err)
	case ruling == checkpoint.Create, ruling == checkpoint.Take:
		return outcome{action: putBack, reason: "this worker is running the job already: a duplicate"}
	default:
		return ruled(ruling, record)
	}
}

// acquire claims or creates the record that was found if the rules say so.
func (d *delivery) acquire(ctx context.Context, record checkpoint.Record, ruling checkpoint.Ruling) (outcome, bool) {
	switch ruling {
	case checkpoint.Create:
		return d.take(ctx, func() (*checkpoint.Claim, error) { return d.Records.Create(ctx, d.ref(), d.owner) })
	case checkpoint.Take:
		if out, ok := d.admit(record); !ok {
			return out, false
		}
		return d.take(ctx, func() (*checkpoint.Claim, error) { return d.Records.Take(ctx, d.ref(), record, d.owner) })
	default:
		return ruled(ruling, record), false
	}
}

// take claims the record. The first try makes the claim; further ones repeat
// its write, which settles what became of the one before.
func (d *delivery) take(ctx context.Context, claim func() (*checkpoint.Claim, error)) (outcome, bool) {
	err := d.insist(ctx, "claim the job's record", func() (err error) {
		if d.claim == nil {
			d.claim, err = claim()
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
	if r := d.claim.Record(); exhausted(r.SilentEnds, r.EarlyEnds) != "" {
		return outcome{action: poison, reason: exhausted(r.SilentEnds, r.EarlyEnds)}, false
	}
	return outcome{}, true
}

// stopped is the outcome of a delivery that was stopped before it came to its
// handler; err is what it was waiting for.
func stopped(ctx context.Context, err error) outcome {
	return outcome{action: interrupted, reason: fmt.Sprintf("%v, before it began: %v", stopOf(ctx), err)}
}
