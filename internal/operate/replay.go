package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
)

// Replay starts the jobs of the selected poison messages again, from their recorded
// state, or with fromScratch without it. It calls report with the outcome for each
// message, one at a time. An error of report ends the run, and so do an error of the
// poison queue itself and the end of ctx.
func (p *PoisonQueue) Replay(ctx context.Context, s Selection, fromScratch bool, report func(Outcome) error) error {
	r := &bulkRun{poison: p, selection: s, report: report}
	r.act = func(ctx context.Context, c *claimed, w *work) (Action, string, error) {
		return r.replay(ctx, c, w, fromScratch)
	}
	return r.all(ctx)
}

// replay opens the record, puts the message, and deletes the poison message, in that
// order.
func (r *bulkRun) replay(ctx context.Context, c *claimed, w *work, fromScratch bool) (Action, string, error) {
	switch {
	case c.Fault != nil:
		return Refused, fmt.Sprintf("%v; purge can remove it", c.Fault), nil //nolint:nilerr // a fault of the message is no error of the run
	case w.textGone:
		return r.replayWithoutText(ctx, c, w)
	case !w.isJob:
		return r.replayUnread(ctx, c, w)
	}
	switch before := r.before(w); {
	case before.action != Replayed:
	case w.poison.MessageID == before.message || c.batch == before.batch || c.InsertedAt.Before(before.at):
		// Messages of one batch were claimed before the record of any of their jobs was opened.
		// The service's times are not enough: they are whole seconds.
		return Dropped, "it is a duplicate; the job was replayed just now", r.poison.drop(ctx, c.lease, w)
	default: // a worker has given the job up again
		return notOfThisRun, "", nil
	}
	was, err := r.poison.Records.Replay(ctx, w.delivery(), r.poison.Name, w.poison.PoisonedAt, fromScratch)
	if err != nil {
		return "", "", err
	}
	if was.Version != 0 && (!was.GivenUp() || was.IsPast(w.envelope.Again)) {
		return Dropped, needsNothing(was, w), r.poison.leave(ctx, c.lease, w, was)
	}
	if w.actedAt = was.ReadAt; was.ReadAt.Before(c.InsertedAt) { // without a record there is no time
		w.actedAt = c.InsertedAt
	}
	if err := r.poison.origin(w).PutMoved(ctx, w.envelope, 0, r.poison.Payloads); err != nil {
		return "", "", err
	}
	return Replayed, replayedFrom(was, fromScratch), r.poison.drop(ctx, c.lease, w)
}

// replayUnread puts the text of a message that could not be decoded on the queue
// again, unchanged: a worker of another version may be able to decode it.
func (r *bulkRun) replayUnread(ctx context.Context, c *claimed, w *work) (Action, string, error) {
	if errors.Is(w.unreadable, errNoKind) {
		return Refused, w.unreadable.Error(), nil
	}
	if err := r.poison.origin(w).PutUnchanged(ctx, w.text); err != nil {
		return "", "", err
	}
	return Replayed, fmt.Sprintf("as it was, although this version cannot read it: %v", w.unreadable), r.poison.drop(ctx, c.lease, w)
}

// replayWithoutText handles a message whose text is gone. The text is deleted last,
// so this is a duplicate of a message that was handled before, unless the record
// says otherwise.
func (r *bulkRun) replayWithoutText(ctx context.Context, c *claimed, w *work) (Action, string, error) {
	record, err := r.poison.recordOf(ctx, w)
	switch {
	case err != nil:
		return "", "", err
	case record.Version == 0 || record.Status == checkpoint.Poison:
		return Refused, "the text of its message is gone, and with it the payload; put the job again under another id", nil
	default:
		return Dropped, needsNothing(record, w), r.poison.drop(ctx, c.lease, w)
	}
}

// origin returns the queue that a job came from.
func (p *PoisonQueue) origin(w *work) *queue.Queue {
	if w.poison.Origin == p.OnDemand.Name() {
		return p.OnDemand
	}
	for _, q := range p.Queue.All() {
		if q.Name() == w.poison.Origin {
			return q
		}
	}
	return p.Queue.For(w.envelope.ID)
}

// leave deletes the poison message of a job that needs nothing. If the job has ended, or
// this run of it, it deletes the payload too.
func (p *PoisonQueue) leave(ctx context.Context, lease *queue.Lease, w *work, record checkpoint.Record) error {
	if record.Status == checkpoint.Done || record.Status == checkpoint.Cancelled || record.IsPast(w.envelope.Again) {
		if err := p.Payloads.Discard(ctx, w.envelope); err != nil {
			return err
		}
	}
	return p.drop(ctx, lease, w)
}

func needsNothing(r checkpoint.Record, w *work) string {
	switch {
	case w.isJob && r.IsPast(w.envelope.Again):
		return fmt.Sprintf("its job was put again since: it is %s", r.Status)
	case r.Status == checkpoint.Done, r.Status == checkpoint.Cancelled:
		return fmt.Sprintf("its job is %s already", r.Status)
	default:
		return fmt.Sprintf("its job is active again: it is %s", r.Status)
	}
}

func replayedFrom(was checkpoint.Record, fromScratch bool) string {
	switch {
	case was.Version == 0:
		return "from scratch: its record is gone"
	case fromScratch:
		return "from scratch"
	case !was.HasWork():
		return "from scratch: there is no recorded state"
	case !was.HasState():
		return fmt.Sprintf("from its %d outputs: there is no recorded state", was.Outputs.Files)
	case was.Fraction > 0:
		return fmt.Sprintf("from its state, %.0f %% done", was.Fraction*100)
	default:
		return "from its state"
	}
}
