package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// Purge gives the jobs of the selected poison messages up for good: their records
// become cancelled, and state, payload and poison message go. It tells what
// became of each message as [PoisonQueue.Replay] does.
//
// A message whose job's id was used for other work, or whose record is another
// version's, is taken away only when it is selected by a message's id, and alone.
func (p *PoisonQueue) Purge(ctx context.Context, s Selection, tell func(Outcome) error) error {
	r := &run{PoisonQueue: p, selection: s, report: tell}
	r.act = r.purge
	return r.all(ctx)
}

// purge cancels the record, deletes the payload, and takes the poison message
// away, in that order.
func (r *run) purge(ctx context.Context, c *claimed, w *work) (Action, string, error) {
	switch {
	case c.Fault != nil:
		return Purged, c.Fault.Error(), c.lease.Complete(ctx)
	case w.textGone:
		return r.purgeWithoutText(ctx, c, w)
	case !w.isJob:
		return Purged, w.unreadable.Error(), r.drop(ctx, c.lease, w)
	case r.before(w) == Purged:
		return Dropped, "it was there twice; the job was purged just now", r.drop(ctx, c.lease, w)
	}
	was, err := r.Records.Cancel(ctx, w.delivery(), r.Name, purgeReason(w))
	switch {
	case errors.Is(err, checkpoint.ErrOtherWork), errors.Is(err, checkpoint.ErrUnknownFormat):
		return r.purgeAlone(ctx, c, w, err)
	case err != nil:
		return "", "", err
	case was.Version != 0 && !was.GivenUp():
		return Dropped, needsNothing(was), r.leave(ctx, c.lease, w, was)
	}
	if err := r.Payloads.Discard(ctx, w.envelope); err != nil {
		return "", "", err
	}
	return Purged, w.poison.Reason, r.drop(ctx, c.lease, w)
}

// purgeAlone takes a message away whose record is not its own, if that was asked
// for by the message's id.
func (r *run) purgeAlone(ctx context.Context, c *claimed, w *work, why error) (Action, string, error) {
	if _, byMessage := r.selection.Has(c.Item); !byMessage {
		return Refused, fmt.Sprintf("%v; the id of the message takes it away alone", why), nil
	}
	return Dropped, fmt.Sprintf("the record was left alone: %v", why), r.drop(ctx, c.lease, w)
}

// purgeWithoutText is for a message whose text is gone, and with it the name of
// its payload: that stays for its age rule.
func (r *run) purgeWithoutText(ctx context.Context, c *claimed, w *work) (Action, string, error) {
	record, err := r.recordOf(ctx, w)
	if err != nil {
		return "", "", err
	}
	if record.Version == 0 {
		return Purged, "the text of its message was gone", r.drop(ctx, c.lease, w)
	}
	delivery := checkpoint.Delivery{ID: w.id, Kind: record.Kind, PayloadHash: record.PayloadHash}
	was, err := r.Records.Cancel(ctx, delivery, r.Name, purgeReason(w))
	switch {
	case err != nil:
		return "", "", err
	case was.Version != 0 && !was.GivenUp():
		return Dropped, needsNothing(was), r.drop(ctx, c.lease, w)
	}
	return Purged, "the text of its message was gone", r.drop(ctx, c.lease, w)
}

func purgeReason(w *work) string {
	return "purged from the poison queue, where it was because: " + w.poison.Reason
}
