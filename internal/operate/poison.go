package operate

import (
	"context"
	"errors"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
)

// PoisonQueue is where an operator works on the poison queue of a deployment.
type PoisonQueue struct {
	// Poison is the poison queue. What is replayed goes to the queue that it
	// came from: OnDemand, or else Queue.
	Poison, Queue, OnDemand *queue.Queue

	Payloads *queue.Payloads
	Records  *checkpoint.Store

	// Name goes into the records that are written, as their last writer.
	Name string

	// DefaultKind makes a job of a text that is nobody's message, as the workers'
	// flag of that name does. Empty leaves such texts where they are.
	DefaultKind string
}

// Item is a message on the poison queue.
type Item struct {
	// MessageID is its own id; Poison.MessageID is that of the message it
	// stands for.
	MessageID string

	// InsertedAt is when it was put, by the service's clock.
	InsertedAt time.Time

	Poison queue.Poison

	// Fault says why it is no poison message; nil for one that is. Text is then
	// what it says.
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

// Peek returns the messages at the front of the poison queue, at most 32, and
// about how many there are in all. It changes nothing.
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

// All tells of every message on the poison queue, one at a time. It claims them,
// which hides them from other operators meanwhile, and puts them back.
func (p *PoisonQueue) All(ctx context.Context, tell func(Item) error) error {
	return p.scan(ctx, Selection{}, nil, tell)
}

// Lookup returns what is known of the job behind an item: the text of the message
// that it stands for, and the job's record, nil where there is none to be read.
// The text is empty when it is gone.
func (p *PoisonQueue) Lookup(ctx context.Context, it Item) (text string, record *checkpoint.Record, err error) {
	if it.Fault != nil {
		return it.Text, nil, nil //nolint:nilerr // there is no job to look for
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
