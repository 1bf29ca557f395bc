package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
)

// ErrLost says that a message is no longer this lease's: another worker
// dequeued it, or it was deleted.
var ErrLost = errors.New("message is no longer held by this worker")

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

	// ExpiresAt is when the service removes the message, by its own clock; zero
	// for one that never expires, as every message that is put here.
	ExpiresAt time.Time

	// AskedAt is the local time just before the claim was sent: the start of
	// its visibility that this worker can trust.
	AskedAt time.Time

	// ClaimedAt is the time of the claim by the service's clock.
	ClaimedAt time.Time

	// turn holds one value while a call to the service is under way.
	turn chan struct{}

	mu       sync.Mutex // guards what follows; never held during a call
	text     string
	receipt  string
	adopted  int       // how often a later claim was adopted
	hidden   hiding    // by the last claim or renewal that was answered
	doubtful time.Time // end of the longest hiding that a renewal without an answer may have bought
	void     bool      // the service refused the receipt
	gone     bool

	// rewritten replaces text from the next update on; empty for no change. A later
	// claim that is adopted keeps it.
	rewritten string
}

// hiding is a time for which a message is hidden from others. It begins when the
// service was asked for it, so that the worker never trusts it for too long.
type hiding struct {
	asked      time.Time
	visibility time.Duration
}

func (h hiding) end() time.Time { return h.asked.Add(h.visibility) }

// over reports whether the hiding has ended, by the monotonic clock or by the
// wall clock: the former does not count the time for which a VM was suspended,
// the latter may have been set back.
func (h hiding) over(now time.Time) bool {
	return now.Sub(h.asked) >= h.visibility || now.Round(0).Sub(h.asked.Round(0)) >= h.visibility
}

func newLease(q *Queue, m *azqueue.DequeuedMessage, asked, clock time.Time, visibility time.Duration) *Lease {
	l := &Lease{
		queue: q, ID: *m.MessageID, Deliveries: *m.DequeueCount,
		AskedAt: asked, ClaimedAt: clock,
		turn: make(chan struct{}, 1), receipt: *m.PopReceipt, hidden: hiding{asked, visibility},
	}
	if m.MessageText != nil {
		l.text = *m.MessageText
	}
	if m.InsertionTime != nil {
		l.InsertedAt = *m.InsertionTime
	}
	if m.ExpirationTime != nil && m.ExpirationTime.Year() < neverYear {
		l.ExpiresAt = *m.ExpirationTime
	}
	return l
}

// Queue returns the queue that the message is on.
func (l *Lease) Queue() *Queue { return l.queue }

// Text returns the message's text as it stands on the queue.
func (l *Lease) Text() string {
	text, _, _ := l.current()
	return text
}

// Gone reports whether the last call for the message was answered with 404: it
// expired, or somebody deleted it or cleared the queue. The service's documents
// allow the same answer for a receipt that is only stale, so this is a reason to
// put another message, which is absorbed as a duplicate where it was not needed,
// and no proof.
func (l *Lease) Gone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone
}

// Renew hides the message from others for visibility from now on. It returns
// an error that wraps [ErrLost] when the service refuses the receipt. With any
// other error nothing is known: the caller tries again.
//
// It is one request, without the SDK's retries. A renewal that took effect has
// changed the receipt, so a retry after a lost reply would be refused, and look
// as if another worker had the message. See [Lease.DoubtfulUntil].
func (l *Lease) Renew(ctx context.Context, visibility time.Duration) error {
	_, _, adopted := l.current()
	asked := time.Now()
	err := l.update(policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1}), nil, visibility)
	l.renewed(hiding{asked, visibility}, adopted, err)
	if err != nil {
		return fmt.Errorf("renew message %s: %w", l.ID, err)
	}
	return nil
}

// renewed records the outcome of a renewal that asked for h. One during which a
// later claim was adopted no longer counts.
func (l *Lease) renewed(h hiding, adopted int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.adopted != adopted:
	case err == nil:
		l.hidden, l.doubtful, l.void = h, time.Time{}, false
	case errors.Is(err, ErrLost):
		l.void = true
	case !l.void && !Throttled(err) && h.end().After(l.doubtful):
		l.doubtful = h.end()
	}
}

// HiddenUntil returns the time up to which the message is hidden for this lease,
// by the last answer.
func (l *Lease) HiddenUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hidden.end()
}

// DoubtfulUntil returns the time up to which the message may be hidden by a
// renewal that got no answer, the zero time if every renewal since the last
// answer did. A refusal before that time does not prove that another worker has
// the message: the receipt may be void because of that renewal.
func (l *Lease) DoubtfulUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doubtful
}

// Expired reports whether another worker may have the message, because the time
// for which it is known to be hidden is over at now.
func (l *Lease) Expired(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hidden.over(now)
}

// Release makes the message visible to all after delay (0 at once). A message
// that is no longer this lease's counts as released; after a renewal without an
// answer it may stay hidden for what that renewal bought.
func (l *Lease) Release(ctx context.Context, delay time.Duration) error {
	if err := l.update(ctx, nil, delay); err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("release message %s: %w", l.ID, err)
	}
	return nil
}

// Complete deletes the message. A message that is gone, or that another worker
// holds now, counts as completed: whoever holds it finds the job's record final.
func (l *Lease) Complete(ctx context.Context) error {
	err := l.withReceipt(ctx, func(ctx context.Context, receipt string) (string, error) {
		_, err := l.queue.client.DeleteMessage(ctx, l.ID, receipt, nil)
		return "", err
	})
	if err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("delete message %s: %w", l.ID, err)
	}
	return nil
}

// Adopt goes on with a later claim of the same message: one that this very
// process made after the visibility had run out, as in a storage outage. It
// does not wait for a call under way, whose outcome then no longer counts.
// Later must not be used any more.
func (l *Lease) Adopt(later *Lease) {
	later.mu.Lock()
	text, receipt, hidden := later.text, later.receipt, later.hidden
	later.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text, l.receipt, l.gone, l.hidden = text, receipt, false, hidden
	l.doubtful, l.void = time.Time{}, false
	l.adopted++
}

// update sends Update Message with a new text, or with nil the one that stands
// when its turn comes. The text must always go along: the service would empty
// the message otherwise.
func (l *Lease) update(ctx context.Context, rewrite *string, visibility time.Duration) error {
	return l.withReceipt(ctx, func(ctx context.Context, receipt string) (string, error) {
		text := l.next()
		if rewrite != nil {
			text = *rewrite
		}
		options := azqueue.UpdateMessageOptions{VisibilityTimeout: new(seconds(visibility))}
		reply, err := l.queue.client.UpdateMessage(ctx, l.ID, receipt, text, &options)
		if err != nil || reply.PopReceipt == nil {
			return "", err
		}
		l.setText(text)
		return *reply.PopReceipt, nil
	})
}

// errAdopted says that a refused receipt was an old one: a later claim was
// adopted while the call was under way.
var errAdopted = errors.New("message was claimed anew by this worker meanwhile")

// withReceipt makes one call with the current receipt, after those under way, and
// keeps the receipt that the call returns, if any. A receipt that the service
// refuses gives an error that wraps [ErrLost].
func (l *Lease) withReceipt(ctx context.Context, call func(context.Context, string) (string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, before, adopted := l.current()
	receipt, err := call(ctx, before)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.adopted == adopted && (err == nil || isLost(err)) {
		l.gone = isNotFound(err)
	}
	switch {
	case isLost(err) && l.adopted != adopted:
		return fmt.Errorf("%w: %w", errAdopted, err)
	case isLost(err):
		return fmt.Errorf("%w: %w", ErrLost, err)
	case err == nil && receipt != "" && l.adopted == adopted:
		l.receipt = receipt
	}
	return err
}

func (l *Lease) current() (text, receipt string, adopted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text, l.receipt, l.adopted
}

// next returns the text that the next update of the message carries.
func (l *Lease) next() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rewritten != "" {
		return l.rewritten
	}
	return l.text
}

func (l *Lease) setText(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
}

// Bounds of the wait of a message that was put back.
const (
	minPutBack = 30 * time.Second
	maxPutBack = 10 * time.Minute
)

// PutBackDelay returns how long a message that nobody can work on yet stays
// hidden: a quarter of the time since it was put back first, within 30 s … 10 min.
func PutBackDelay(since, now time.Time) time.Duration {
	return min(max(now.Sub(since)/4, minPutBack), maxPutBack)
}

// PutBack hands the message back without working on it, hidden for
// [PutBackDelay]. The first time it writes since when into the envelope, by the
// service's clock; a foreign message thereby becomes an envelope whose id is
// fixed. One that no longer fits has its payload moved to a blob.
//
// A time in the future is no worker's, and would let the message be put back for
// ever: it counts as none.
func (l *Lease) PutBack(ctx context.Context, e Envelope, payloads *Payloads) error {
	if l.wasPutBack(e) {
		return l.Release(ctx, PutBackDelay(e.PutBackSince, l.ClaimedAt))
	}
	return l.PutBackFor(ctx, e, payloads, minPutBack)
}

// PutBackFor is PutBack with a delay that the caller chose.
func (l *Lease) PutBackFor(ctx context.Context, e Envelope, payloads *Payloads, delay time.Duration) error {
	if l.wasPutBack(e) {
		return l.Release(ctx, delay)
	}
	e.PutBackSince = l.ClaimedAt
	text, err := e.encode(maxJSON)
	if _, ok := errors.AsType[*TooLargeError](err); ok {
		if e, err = payloads.Offload(ctx, e); err == nil {
			text, err = e.encode(maxJSON)
		}
	}
	if err != nil {
		return fmt.Errorf("put back message %s: %w", l.ID, err)
	}
	err = l.update(ctx, &text, delay)
	if err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("put back message %s: %w", l.ID, err)
	}
	return nil
}

// wasPutBack reports whether the envelope has a time since when it is put back.
func (l *Lease) wasPutBack(e Envelope) bool {
	return !e.PutBackSince.IsZero() && !e.PutBackSince.After(l.ClaimedAt)
}

// ClearPutBack takes put_back_since out of the message: the next update of the
// message, a renewal for example, carries the text without it and costs no call
// of its own. It returns the envelope as it is then. e is what Text decodes to.
func (l *Lease) ClearPutBack(e Envelope) Envelope {
	if e.PutBackSince.IsZero() {
		return e
	}
	e.PutBackSince = time.Time{}
	if text, err := e.encode(maxJSON); err == nil { // it becomes shorter, so it fits
		l.mu.Lock()
		defer l.mu.Unlock()
		l.rewritten = text
	}
	return e
}

// isLost reports whether err is the service's way of saying that a pop receipt is
// stale: 400 PopReceiptMismatch or 404 MessageNotFound.
func isLost(err error) bool {
	return queueerror.HasCode(err, queueerror.PopReceiptMismatch, queueerror.MessageNotFound)
}

// isNotFound reports whether err is 404 MessageNotFound.
func isNotFound(err error) bool { return queueerror.HasCode(err, queueerror.MessageNotFound) }

// Throttled reports whether err says that the service is busy: 503 or 429.
func Throttled(err error) bool {
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		return false
	}
	return response.StatusCode == http.StatusServiceUnavailable || response.StatusCode == http.StatusTooManyRequests
}
