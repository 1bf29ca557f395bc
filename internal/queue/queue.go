package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
)

// Limits of the service.
const (
	// MaxClaim is how many messages one call can dequeue at most.
	MaxClaim = 32

	// MaxDelay is the longest visibility timeout.
	MaxDelay = 7 * 24 * time.Hour
)

// callTimeout is the timeout of one call, including the SDK's retries. A caller with
// less time passes a context that ends sooner.
const callTimeout = 20 * time.Second

// never is the time to live of every message put here, in seconds: no expiry.
const never = -1

// neverYear is the year of the expiration time of a message without expiry, in UTC.
const neverYear = 9999

// Queue is one storage queue of jobs.
type Queue struct {
	client *azqueue.QueueClient
	name   string
}

// New returns the queue behind client, with its name for messages to people.
func New(client *azqueue.QueueClient, name string) *Queue {
	return &Queue{client: client, name: name}
}

// Name returns the queue's name, unique in its deployment.
func (q *Queue) Name() string { return q.name }

// Names returns the names of queues.
func Names(queues []*Queue) []string {
	names := make([]string, 0, len(queues))
	for _, q := range queues {
		names = append(names, q.Name())
	}
	return names
}

// Create creates the queue if it does not exist.
func (q *Queue) Create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := q.client.Create(ctx, nil)
	if err != nil && !queueerror.HasCode(err, queueerror.QueueAlreadyExists) {
		return fmt.Errorf("create queue %s: %w", q.name, err)
	}
	return nil
}

// Depth returns the approximate number of messages on the queue, including hidden
// ones.
func (q *Queue) Depth(ctx context.Context) (int, error) {
	properties, err := q.properties(ctx)
	if err != nil {
		return 0, err
	}
	return int(*properties.ApproximateMessagesCount), nil
}

// properties returns the number of messages and the metadata.
func (q *Queue) properties(ctx context.Context) (azqueue.GetQueuePropertiesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	properties, err := q.client.GetProperties(ctx, nil)
	if err != nil {
		return properties, fmt.Errorf("read depth of queue %s: %w", q.name, err)
	}
	return properties, nil
}

// Put adds a message that becomes visible after delay (0 … [MaxDelay]) and
// never expires. The error wraps a [*TooLargeError] if the envelope does not fit.
// A put whose reply was lost may have added the message: putting it again makes a
// duplicate, which costs only a read of the record.
func (q *Queue) Put(ctx context.Context, e Envelope, delay time.Duration) error {
	text, err := e.Encode()
	if err != nil {
		return err
	}
	return q.putText(ctx, text, delay)
}

// PutAny is Put, with the payload in a blob if it does not fit into the message.
func (q *Queue) PutAny(ctx context.Context, e Envelope, delay time.Duration, payloads *Payloads) error {
	err := q.Put(ctx, e, delay)
	if _, ok := errors.AsType[*TooLargeError](err); !ok {
		return err
	}
	if e, err = payloads.Offload(ctx, e); err != nil {
		return err
	}
	return q.Put(ctx, e, delay)
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
// others for visibility. For an empty queue it returns none and no error.
func (q *Queue) Claim(ctx context.Context, n int, visibility time.Duration) ([]*Lease, error) {
	return q.claim(ctx, n, visibility)
}

// ClaimOnce is Claim with one request, without the SDK's retries. A claim that took
// effect has hidden its messages, and a retry would hide as many more; a retry of a
// throttled claim would add to the load. The caller decides when to claim again.
func (q *Queue) ClaimOnce(ctx context.Context, n int, visibility time.Duration) ([]*Lease, error) {
	return q.claim(policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1}), n, visibility)
}

func (q *Queue) claim(ctx context.Context, n int, visibility time.Duration) ([]*Lease, error) {
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
	if slices.ContainsFunc(reply.Messages, isIncomplete) {
		return nil, fmt.Errorf("claim from queue %s: %w", q.name, errIncomplete)
	}
	leases := make([]*Lease, 0, len(reply.Messages))
	for _, m := range reply.Messages {
		leases = append(leases, newLease(q, m, asked, clock, visibility))
	}
	return leases, nil
}

// errIncomplete is the error of a list that lacks parts of a message, for example because it was cut off.
var errIncomplete = fmt.Errorf("a message of the answer lacks its id, its receipt, its text or a time; a proxy or a gateway may have "+
	"sent it: %w", io.ErrUnexpectedEOF)

// isIncomplete reports whether a message of a list lacks a part.
func isIncomplete(m *azqueue.DequeuedMessage) bool {
	return m == nil || value(m.MessageID) == "" || value(m.PopReceipt) == "" || m.DequeueCount == nil || m.InsertionTime == nil ||
		m.ExpirationTime == nil || m.MessageText == nil
}

// value returns what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// seconds rounds up, so that a delay is never shorter than requested.
func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

// PutMoved adds a message that replaces another one of a job that has a record:
// on another queue, or because the old one expired or was removed. The new message
// has resume set, so that even its first delivery reads the record, becomes visible
// after delay, and was never put back. It does not depend on the old message: a
// foreign one becomes an envelope with a fixed id, and a payload that no longer fits
// moves to a blob.
//
// The caller deletes the old message only afterwards. Repeating both after a crash
// makes a duplicate, which costs only a read of the record.
func (q *Queue) PutMoved(ctx context.Context, e Envelope, delay time.Duration, payloads *Payloads) error {
	e.Resume, e.PutBackSince = true, time.Time{}
	return q.PutAny(ctx, e, delay, payloads)
}

// Peeked is a message on the queue that was not claimed.
type Peeked struct {
	ID, Text   string
	Deliveries int64     // how often it was dequeued
	InsertedAt time.Time // by the service's clock
	SeenAt     time.Time // the time of the peek, by the service's clock
}

// Peek returns up to n visible messages (at most [MaxClaim]) without changing them.
// The service shows only those at the front: to see more, claim them.
func (q *Queue) Peek(ctx context.Context, n int) ([]Peeked, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	seen := time.Now()
	reply, err := q.client.PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: new(int32(min(n, MaxClaim)))})
	if err != nil {
		return nil, fmt.Errorf("peek at queue %s: %w", q.name, err)
	}
	if reply.Date != nil {
		seen = *reply.Date
	}
	peeked := make([]Peeked, 0, len(reply.Messages))
	for _, m := range reply.Messages {
		if m == nil || value(m.MessageID) == "" || m.InsertionTime == nil || m.MessageText == nil {
			return nil, fmt.Errorf("peek at queue %s: %w", q.name, errIncomplete)
		}
		peeked = append(peeked, Peeked{
			ID: *m.MessageID, Text: *m.MessageText, Deliveries: value(m.DequeueCount), InsertedAt: *m.InsertionTime, SeenAt: seen,
		})
	}
	return peeked, nil
}

// FrontWaited returns for how long the message at the front of the queue has been there,
// by the service's clock; 0 if none is visible.
func (q *Queue) FrontWaited(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := q.client.PeekMessage(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("peek at queue %s: %w", q.name, err)
	}
	if len(reply.Messages) == 0 || reply.Messages[0].InsertionTime == nil || reply.Date == nil {
		return 0, nil
	}
	return max(reply.Date.Sub(*reply.Messages[0].InsertionTime), 0), nil
}
