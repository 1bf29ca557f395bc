package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
)

// Replay gives the jobs of the selected poison messages another chance: from
// their recorded state, or fromScratch without it. It tells what became of each
// message, one at a time; an error of tell ends the run, and so do an error of
// the poison queue itself and the end of ctx.
func (p *PoisonQueue) Replay(ctx context.Context, s Selection, fromScratch bool, tell func(Outcome) error) error {
	r := &run{PoisonQueue: p, selection: s, report: tell}
	r.act = func(ctx context.Context, c *claimed, w *work) (Action, string, error) {
		return r.replay(ctx, c, w, fromScratch)
	}
	return r.all(ctx)
}

// replay opens the record, puts the message, and takes the poison message away,
// in that order.
func (r *run) replay(ctx context.Context, c *claimed, w *work, fromScratch bool) (Action, string, error) {
	switch {
	case c.Fault != nil:
		return Refused, fmt.Sprintf("%v; purge can take it away", c.Fault), nil //nolint:nilerr // a fault of the message is no error of the run
	case w.textGone:
		return r.replayWithoutText(ctx, c, w)
	case !w.isJob:
		return r.replayUnread(ctx, c, w)
	case r.before(w) == Replayed:
		return Dropped, "it was there twice; the job was replayed just now", r.drop(ctx, c.lease, w)
	}
	was, err := r.Records.Replay(ctx, w.delivery(), r.Name, w.poison.PoisonedAt, fromScratch)
	if err != nil {
		return "", "", err
	}
	if was.Version != 0 && !was.GivenUp() {
		return Dropped, needsNothing(was), r.leave(ctx, c.lease, w, was)
	}
	if err := r.origin(w).PutMoved(ctx, w.envelope, 0, r.Payloads); err != nil {
		return "", "", err
	}
	return Replayed, replayedFrom(was, fromScratch), r.drop(ctx, c.lease, w)
}

// replayUnread puts the text of a message that had no record once more, as it
// was: by now there may be a worker that reads it.
func (r *run) replayUnread(ctx context.Context, c *claimed, w *work) (Action, string, error) {
	if errors.Is(w.unreadable, errNoKind) {
		return Refused, w.unreadable.Error(), nil
	}
	if err := r.origin(w).PutUnchanged(ctx, w.text); err != nil {
		return "", "", err
	}
	return Replayed, fmt.Sprintf("as it was, although this version cannot read it: %v", w.unreadable), r.drop(ctx, c.lease, w)
}

// replayWithoutText is for a message whose text is gone: it goes last, so the
// message was there twice and the other one is through. Unless its record says
// that it is not.
func (r *run) replayWithoutText(ctx context.Context, c *claimed, w *work) (Action, string, error) {
	record, err := r.recordOf(ctx, w)
	switch {
	case err != nil:
		return "", "", err
	case record.Version == 0 || record.Status == checkpoint.Poison:
		return Refused, "the text of its message is gone, and with it the payload; put the job anew under another id", nil
	default:
		return Dropped, needsNothing(record), r.drop(ctx, c.lease, w)
	}
}

// origin is the queue that a job came from.
func (p *PoisonQueue) origin(w *work) *queue.Queue {
	if p.OnDemand != nil && w.poison.Origin == p.OnDemand.Name() {
		return p.OnDemand
	}
	return p.Queue
}

// leave takes away the poison message of a job that needs nothing, and what the
// job's end left to do.
func (p *PoisonQueue) leave(ctx context.Context, lease *queue.Lease, w *work, record checkpoint.Record) error {
	if record.Status == checkpoint.Done || record.Status == checkpoint.Cancelled {
		if err := p.Payloads.Discard(ctx, w.envelope); err != nil {
			return err
		}
	}
	return p.drop(ctx, lease, w)
}

func needsNothing(r checkpoint.Record) string {
	switch r.Status {
	case checkpoint.Done, checkpoint.Cancelled:
		return fmt.Sprintf("its job is %s already", r.Status)
	default:
		return fmt.Sprintf("its job is at work again: it is %s", r.Status)
	}
}

func replayedFrom(was checkpoint.Record, fromScratch bool) string {
	switch {
	case was.Version == 0:
		return "from scratch: its record is gone"
	case fromScratch:
		return "from scratch"
	case !was.HasState():
		return "from scratch: there is no recorded state"
	case was.Fraction > 0:
		return fmt.Sprintf("from its state, %.0f %% done", was.Fraction*100)
	default:
		return "from its state"
	}
}
