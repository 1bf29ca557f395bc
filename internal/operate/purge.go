package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// Purge cancels the jobs of the selected poison messages: their records become
// [checkpoint.Cancelled], and state, payload and poison message are deleted. It
// reports the outcomes as [PoisonQueue.Replay] does.
//
// If the job's id was used for other work, or its record is of another version, only
// the message is deleted, and only if it is selected by a message's id.
func (p *PoisonQueue) Purge(ctx context.Context, s Selection, report func(Outcome) error) error {
	r := &run{poison: p, selection: s, report: report}
	r.act = r.purge
	return r.all(ctx)
}

// purge cancels the record, deletes the payload, and deletes the poison message, in
// that order.
func (r *run) purge(ctx context.Context, c *claimed, w *work) (Action, string, error) {
	switch {
	case c.Fault != nil:
		return Purged, c.Fault.Error(), c.lease.Complete(ctx)
	case w.textGone:
		return r.purgeWithoutText(ctx, c, w)
	case !w.isJob:
		return Purged, w.unreadable.Error(), r.poison.drop(ctx, c.lease, w)
	case r.before(w) == Purged:
		return Dropped, "it is a duplicate; the job was purged just now", r.poison.drop(ctx, c.lease, w)
	}
	was, err := r.poison.Records.Purge(ctx, w.delivery(), r.poison.Name, purgeReason(w))
	switch {
	case errors.Is(err, checkpoint.ErrOtherWork), errors.Is(err, checkpoint.ErrUnknownFormat):
		return r.purgeAlone(ctx, c, w, err)
	case err != nil:
		return "", "", err
	case was.Version != 0 && !was.GivenUp():
		return Dropped, needsNothing(was), r.poison.leave(ctx, c.lease, w, was)
	}
	if err := r.poison.Payloads.Discard(ctx, w.envelope); err != nil {
		return "", "", err
	}
	return Purged, w.poison.Reason, r.poison.drop(ctx, c.lease, w)
}

// purgeAlone deletes a message whose id stands for other work, without changing the
// record, if it was selected by the message's id.
func (r *run) purgeAlone(ctx context.Context, c *claimed, w *work, why error) (Action, string, error) {
	if _, byMessage := r.selection.Has(c.Item); !byMessage {
		return Refused, fmt.Sprintf("%v; the id of the message removes the message alone", why), nil
	}
	return Dropped, fmt.Sprintf("the record was not changed: %v", why), r.poison.drop(ctx, c.lease, w)
}

// purgeWithoutText purges a message whose text is gone, and with it the name of the
// payload's blob, which the lifecycle rule of the account deletes.
func (r *run) purgeWithoutText(ctx context.Context, c *claimed, w *work) (Action, string, error) {
	record, err := r.poison.recordOf(ctx, w)
	if err != nil {
		return "", "", err
	}
	if record.Version == 0 {
		return Purged, "the text of its message was gone", r.poison.drop(ctx, c.lease, w)
	}
	delivery := checkpoint.Delivery{ID: w.id, Kind: record.Kind, PayloadHash: record.PayloadHash}
	was, err := r.poison.Records.Purge(ctx, delivery, r.poison.Name, purgeReason(w))
	switch {
	case err != nil:
		return "", "", err
	case was.Version != 0 && !was.GivenUp():
		return Dropped, needsNothing(was), r.poison.drop(ctx, c.lease, w)
	}
	return Purged, "the text of its message was gone", r.poison.drop(ctx, c.lease, w)
}

func purgeReason(w *work) string {
	return "purged from the poison queue, where it was because: " + w.poison.Reason
}
