package operate

import (
	"context"
	"errors"
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
	// MessageID is its own id; Poison.MessageID is that of the original message.
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
// approximate total. It changes nothing.
func (p *PoisonQueue) Peek(ctx context.Context) (items []Item, about int, err error) {
	peeked, err := p.Poison.Peek(ctx, queue.MaxClaim)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range peeked {
		items = append(items, newItem(m.ID, m.Text, m.InsertedAt))
	}
	if len(items) < queue.MaxClaim {
		return items, len(items), nil
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
