package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
)

// Limits of the service.
const (
	// MaxClaim is the most messages one call can dequeue.
	MaxClaim = 32

	// MaxDelay is the longest visibility time-out.
	MaxDelay = 7 * 24 * time.Hour
)

// callTimeout bounds one call, the SDK's retries included. A caller with less
// time gives a context that ends sooner.
const callTimeout = 20 * time.Second

// never is the time to live of every message put here, in seconds: it does not expire.
const never = -1

// neverYear is the year in which a message expires that does not, in UTC.
const neverYear = 9999

// Queue is one storage queue of jobs.
type Queue struct {
	client *azqueue.QueueClient
	name   string
}

// New returns the queue of that name behind client.
func New(client *azqueue.QueueClient, name string) *Queue {
	return &Queue{client: client, name: name}
}

// Name returns the queue's name.
func (q *Queue) Name() string { return q.name }

// Create makes the queue if it is missing.
func (q *Queue) Create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := q.client.Create(ctx, nil)
	if err != nil && !queueerror.HasCode(err, queueerror.QueueAlreadyExists) {
		return fmt.Errorf("create queue %s: %w", q.name, err)
	}
	return nil
}

// Depth returns about how many messages the queue holds, invisible ones included.
func (q *Queue) Depth(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	properties, err := q.client.GetProperties(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("read depth of queue %s: %w", q.name, err)
	}
	return int(*properties.ApproximateMessagesCount), nil
}

// Put adds a message that becomes visible after delay (0 … [MaxDelay]) and
// never expires. The error wraps a [*TooLargeError] when the envelope does not
// fit. A put whose reply was lost may have added the message: putting it again
// makes a duplicate, which costs nothing but a look.
func (q *Queue) Put(ctx context.Context, e Envelope, delay time.Duration) error {
	text, err := e.Encode()
	if err != nil {
		return err
	}
	return q.putText(ctx, text, delay)
}

func (q *Queue) putText(ctx context.Context, text string, delay time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	options := azqueue.EnqueueMessageOptions{TimeToLive: new(int32(never)), VisibilityTimeout: new(seconds(delay))}
	if _, err := q.client.EnqueueMessage(ctx, text, &options); err != nil {
		return fmt.Errorf("put message on queue %s: %w", q.name, err)
	}
	return nil
}

// Claim dequeues up to n messages (at most [MaxClaim]) and hides them from
// others for visibility. An empty queue gives none and no error.
func (q *Queue) Claim(ctx context.Context, n int, visibility time.Duration) ([]*Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asked := time.Now()
	options := azqueue.DequeueMessagesOptions{
		NumberOfMessages:  new(int32(min(n, MaxClaim))),
		VisibilityTimeout: new(seconds(visibility)),
	}
	reply, err := q.client.DequeueMessages(ctx, &options)
	if err != nil {
		return nil, fmt.Errorf("claim from queue %s: %w", q.name, err)
	}
	clock := asked
	if reply.Date != nil {
		clock = *reply.Date
	}
	leases := make([]*Lease, 0, len(reply.Messages))
	for _, m := range reply.Messages {
		leases = append(leases, newLease(q, m, asked, clock, visibility))
	}
	return leases, nil
}

// seconds rounds up, so that a wait is never shorter than was asked for.
func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

// PutMoved adds a message that replaces another one of a job that has a record:
// on another queue, or where the old one expired or was removed. It says resume,
// so that even its first delivery reads the record, becomes visible after delay,
// and counts its put-backs from zero. It needs nothing of the message that it
// replaces: a foreign one becomes an envelope whose id is fixed, and a payload
// that does not fit any more moves to a blob.
//
// The old message must be deleted only afterwards. Doing both again after a crash
// makes a duplicate, which costs nothing but a look.
func (q *Queue) PutMoved(ctx context.Context, e Envelope, delay time.Duration, payloads *Payloads) error {
	e.Resume, e.PutBackSince = true, time.Time{}
	err := q.Put(ctx, e, delay)
	if _, ok := errors.AsType[*TooLargeError](err); !ok {
		return err
	}
	if e, err = payloads.Offload(ctx, e); err != nil {
		return err
	}
	return q.Put(ctx, e, delay)
}

// Peeked is a message as it lies on the queue.
type Peeked struct {
	ID, Text   string
	InsertedAt time.Time // by the service's clock
}

// Peek returns up to n messages (at most [MaxClaim]) that are visible, and
// leaves them as they are. The service shows those at the front and no others:
// to see more, they must be claimed.
func (q *Queue) Peek(ctx context.Context, n int) ([]Peeked, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := q.client.PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: new(int32(min(n, MaxClaim)))})
	if err != nil {
		return nil, fmt.Errorf("peek at queue %s: %w", q.name, err)
	}
	peeked := make([]Peeked, 0, len(reply.Messages))
	for _, m := range reply.Messages {
		p := Peeked{ID: *m.MessageID}
		if m.MessageText != nil {
			p.Text = *m.MessageText
		}
		if m.InsertionTime != nil {
			p.InsertedAt = *m.InsertionTime
		}
		peeked = append(peeked, p)
	}
	return peeked, nil
}
