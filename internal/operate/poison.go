package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
)

// PoisonQueue gives an operator access to the poison queue of a deployment.
type PoisonQueue struct {
	// Poison is the poison queue. A replayed job goes to the queue that it came
	// from: OnDemand, or else one of the queues of jobs.
	Poison, OnDemand *queue.Queue
	Queue            queue.Jobs

	// Queues returns the queues that may have messages of jobs.
	Queues func() []*queue.Queue

	Payloads *queue.Payloads
	Records  *checkpoint.Store

	// Name is recorded as the last writer of records that are changed.
	Name string

	// DefaultKind is the kind of messages of other programs, as set by the workers'
	// flag of that name. If it is empty such messages are left on the poison queue.
	DefaultKind string
}

// Item is a message on the poison queue.
type Item struct {
	// MessageID is its own id; Poison.MessageID is the original message's id.
	MessageID string

	// InsertedAt is when it was put, by the service's clock.
	InsertedAt time.Time

	Poison queue.Poison

	// Fault is why the message is not a valid poison message, or nil. With a fault,
	// Text is the message's text.
	Fault error
	Text  string
}

func newItem(id, text string, inserted time.Time) Item {
	p, err := queue.DecodePoison(text)
	if err != nil {
		return Item{MessageID: id, InsertedAt: inserted, Fault: err, Text: text}
	}
	return Item{MessageID: id, InsertedAt: inserted, Poison: p}
}

// Peek returns the messages at the front of the poison queue, at most 32, and the
// approximate total with hidden messages, as of a scan that was interrupted. It changes nothing.
func (p *PoisonQueue) Peek(ctx context.Context) (items []Item, about int, err error) {
	peeked, err := p.Poison.Peek(ctx, queue.MaxClaim)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range peeked {
		items = append(items, newItem(m.ID, m.Text, m.InsertedAt))
	}
	about, err = p.Poison.Depth(ctx)
	return items, max(about, len(items)), err
}

// All calls report for every message on the poison queue, one at a time. It claims
// the messages, which hides them from other operators, and releases them at the end.
func (p *PoisonQueue) All(ctx context.Context, report func(Item) error) error {
	return p.scan(ctx, Selection{}, nil, report)
}

// Lookup returns the text of an item's original message, empty if it is gone, and the
// job's record, nil if there is none.
func (p *PoisonQueue) Lookup(ctx context.Context, it Item) (text string, record *checkpoint.Record, err error) {
	if it.Fault != nil {
		return it.Text, nil, nil //nolint:nilerr // there is no job to look up
	}
	w, err := p.workOf(ctx, it)
	if err != nil || w.id == "" {
		return w.text, nil, err
	}
	found, err := p.Records.Read(ctx, w.id)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return w.text, nil, nil
	}
	return w.text, &found, err
}

// Purge cancels the jobs of the selected poison messages: their records become
// [checkpoint.Cancelled], and state, payload and poison message are deleted. It
// reports the outcomes as [PoisonQueue.Replay] does.
//
// If the job's id was used for other work, or its record is of another version, only
// the message is deleted, and only if it is selected by a message's id.
func (p *PoisonQueue) Purge(ctx context.Context, s Selection, report func(Outcome) error) error {
	r := &bulkRun{poison: p, selection: s, report: report}
	r.act = r.purge
	return r.all(ctx)
}

// purge cancels the record, deletes the payload, and deletes the poison message, in
// that order.
func (r *bulkRun) purge(ctx context.Context, c *claimed, w *work) (Action, string, error) {
	switch {
	case c.Fault != nil:
		return Purged, c.Fault.Error(), c.lease.Complete(ctx)
	case w.textGone:
		return r.purgeWithoutText(ctx, c, w)
	case !w.isJob:
		return Purged, w.unreadable.Error(), r.poison.drop(ctx, c.lease, w)
	case r.before(w).action == Purged:
		return Dropped, "it is a duplicate; the job was purged just now", r.poison.drop(ctx, c.lease, w)
	}
	was, err := r.poison.Records.Purge(ctx, w.delivery(), r.poison.Name, purgeReason(w))
	switch {
	case errors.Is(err, checkpoint.ErrOtherWork), errors.Is(err, checkpoint.ErrUnknownFormat):
		return r.purgeAlone(ctx, c, w, err)
	case err != nil:
		return "", "", err
	case was.Version != 0 && (!was.GivenUp() || was.IsPast(w.envelope.Again)):
		return Dropped, needsNothing(was, w), r.poison.leave(ctx, c.lease, w, was)
	}
	if err := r.poison.Payloads.Discard(ctx, w.envelope); err != nil {
		return "", "", err
	}
	return Purged, w.poison.Reason, r.poison.drop(ctx, c.lease, w)
}

// purgeAlone deletes a message whose id stands for other work, without changing the
// record, if it was selected by the message's id.
func (r *bulkRun) purgeAlone(ctx context.Context, c *claimed, w *work, why error) (Action, string, error) {
	if _, byMessage := r.selection.Has(c.Item); !byMessage {
		return Refused, fmt.Sprintf("%v; the id of the message removes the message alone", why), nil
	}
	return Dropped, fmt.Sprintf("the record was not changed: %v", why), r.poison.drop(ctx, c.lease, w)
}

// purgeWithoutText purges a message whose text is gone, and with it the name of the
// payload's blob, which the lifecycle rule of the account deletes.
func (r *bulkRun) purgeWithoutText(ctx context.Context, c *claimed, w *work) (Action, string, error) {
	record, err := r.poison.recordOf(ctx, w)
	if err != nil {
		return "", "", err
	}
	if record.Version == 0 {
		return Purged, "the text of its message was gone", r.poison.drop(ctx, c.lease, w)
	}
	delivery := checkpoint.Delivery{ID: w.id, Kind: record.Kind, PayloadHash: record.PayloadHash, Again: checkpoint.Newest}
	was, err := r.poison.Records.Purge(ctx, delivery, r.poison.Name, purgeReason(w))
	switch {
	case err != nil:
		return "", "", err
	case was.Version != 0 && !was.GivenUp():
		return Dropped, needsNothing(was, w), r.poison.drop(ctx, c.lease, w)
	}
	return Purged, "the text of its message was gone", r.poison.drop(ctx, c.lease, w)
}

func purgeReason(w *work) string {
	return "purged from the poison queue, where it was because: " + w.poison.Reason
}
