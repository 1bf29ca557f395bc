package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// Lease is one claimed message. It alone owns the message's text and current
// pop receipt. Its methods may be called from several goroutines; calls to the
// service go one after another, since each changes the receipt.
type Lease struct {
	queue *Queue

	// ID is the service's id of the message.
	ID string

	// Deliveries is how often the message was dequeued, this time included.
	Deliveries int64

	// InsertedAt is when the message was put, by the service's clock.
	InsertedAt time.Time

	// AskedAt is the local time just before the claim was sent: the start of
	// its visibility that this worker can trust.
	AskedAt time.Time

	// ClaimedAt is the time of the claim by the service's clock.
	ClaimedAt time.Time

	mu      sync.Mutex
	text    string
	receipt string
}

func newLease(q *Queue, m *azqueue.DequeuedMessage, asked, clock time.Time) *Lease {
	l := &Lease{
		queue: q, ID: *m.MessageID, Deliveries: *m.DequeueCount,
		AskedAt: asked, ClaimedAt: clock, receipt: *m.PopReceipt,
	}
	if m.MessageText != nil {
		l.text = *m.MessageText
	}
	if m.InsertionTime != nil {
		l.InsertedAt = *m.InsertionTime
	}
	return l
}

// Queue returns the queue that the message is on.
func (l *Lease) Queue() *Queue { return l.queue }

// Text returns the message's text as it stands on the queue.
func (l *Lease) Text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// Renew hides the message from others for visibility from now on. It returns
// an error that wraps [ErrLost] when the service refuses the receipt. With any
// other error nothing is known: the caller tries again.
func (l *Lease) Renew(ctx context.Context, visibility time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.update(ctx, l.text, visibility); err != nil {
		return fmt.Errorf("renew message %s: %w", l.ID, err)
	}
	return nil
}

// Adopt goes on with a later claim of the same message: one that this very
// process made after the visibility had run out, as in a storage outage. Later
// must not be used any more.
func (l *Lease) Adopt(later *Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text, l.receipt = later.text, later.receipt
}

// Release makes the message visible to all after delay (0 at once). A message
// that is no longer this lease's counts as released.
func (l *Lease) Release(ctx context.Context, delay time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.update(ctx, l.text, delay); err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("release message %s: %w", l.ID, err)
	}
	return nil
}

// Complete deletes the message. A message that is gone, or that another worker
// holds now, counts as completed: whoever holds it finds the job's record final.
func (l *Lease) Complete(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := l.queue.client.DeleteMessage(ctx, l.ID, l.receipt, nil); err != nil && !lost(err) {
		return fmt.Errorf("delete message %s: %w", l.ID, err)
	}
	return nil
}

// rewrite replaces the text and makes the message visible after delay.
func (l *Lease) rewrite(ctx context.Context, text string, delay time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.update(ctx, text, delay)
}

// update sends Update Message. The text must always go along: the service
// would empty the message otherwise. The caller holds mu.
func (l *Lease) update(ctx context.Context, text string, visibility time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	options := azqueue.UpdateMessageOptions{VisibilityTimeout: to.Ptr(seconds(visibility))}
	reply, err := l.queue.client.UpdateMessage(ctx, l.ID, l.receipt, text, &options)
	if lost(err) {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	if err != nil {
		return err
	}
	l.text = text
	if reply.PopReceipt != nil {
		l.receipt = *reply.PopReceipt
	}
	return nil
}
