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

// ErrLost means that the lease no longer holds the message. Another worker
// dequeued it, or it was deleted.
var ErrLost = errors.New("message is no longer held by this worker")

// Lease is one claimed message. It alone owns the message's text and current
// pop receipt. Its methods may be called from several goroutines; calls to the
// service are made one after another, since each changes the receipt.
type Lease struct {
	queue *Queue

	// ID is the service's id of the message.
	ID string

	// Deliveries is how often the message was dequeued, including this time.
	Deliveries int64

	// InsertedAt is when the message was put, by the service's clock.
	InsertedAt time.Time

	// ExpiresAt is when the service removes the message, by its own clock; zero for a
	// message that never expires, as every message that is put here.
	ExpiresAt time.Time

	// AskedAt is the local time just before the claim was sent: the start of the
	// visibility timeout that this worker can rely on.
	AskedAt time.Time

	// ClaimedAt is the time of the claim by the service's clock.
	ClaimedAt time.Time

	// decoded is the envelope of the message, if it was looked at and not taken yet. It
	// belongs to the goroutine that claims.
	decoded *decoded

	// turn is a lock that can be waited for with a context: it holds one value while a
	// call to the service is in flight.
	turn chan struct{}

	mu       sync.Mutex // guards what follows; never held during a call
	text     string
	receipt  string
	adopted  int       // how often a later claim was adopted
	claim    int64     // the number of the claim that text and receipt are of: the service counts them
	hidden   hiding    // by the last claim or renewal that was answered
	doubtful time.Time // end of the longest visibility timeout that an unanswered renewal may have set
	void     bool      // the service refused the receipt
	gone     bool

	// rewritten replaces text from the next update on; empty for no change. Adopting
	// a later claim keeps it.
	rewritten string
}

// decoded is the result of [Decode].
type decoded struct {
	envelope Envelope
	err      error
}

// hiding is a period for which a message is hidden from others. It begins when the
// request was sent, so that the worker never relies on it for too long.
type hiding struct {
	asked      time.Time
	visibility time.Duration
}

func (h hiding) end() time.Time { return h.asked.Add(h.visibility) }

// over reports whether the period has ended, by the monotonic or the wall clock: the
// former does not count the time for which a VM was suspended, the latter may have
// been set back.
func (h hiding) over(now time.Time) bool {
	return now.Sub(h.asked) >= h.visibility || now.Round(0).Sub(h.asked.Round(0)) >= h.visibility
}

func newLease(q *Queue, m *azqueue.DequeuedMessage, asked, clock time.Time, visibility time.Duration) *Lease {
	l := &Lease{
		queue: q, ID: *m.MessageID, Deliveries: *m.DequeueCount, InsertedAt: *m.InsertionTime,
		AskedAt: asked, ClaimedAt: clock,
		turn: make(chan struct{}, 1), text: *m.MessageText, receipt: *m.PopReceipt, claim: *m.DequeueCount, hidden: hiding{asked, visibility},
	}
	if m.ExpirationTime.Year() < neverYear {
		l.ExpiresAt = *m.ExpirationTime
	}
	return l
}

// Queue returns the queue that the message is on.
func (l *Lease) Queue() *Queue { return l.queue }

// Text returns the message's text on the queue.
func (l *Lease) Text() string {
	text, _, _ := l.current()
	return text
}

// Kind returns the kind of the message's job, as far as it has a usable envelope.
func (l *Lease) Kind() (kind string, ok bool) {
	if l.decoded == nil {
		e, err := Decode(l.Text())
		l.decoded = &decoded{e, err}
	}
	return l.decoded.envelope.Kind, l.decoded.err == nil
}

// TakeEnvelope returns what [Decode] returns for the text that was claimed. Each message is
// decoded once, also if its kind was asked for before; so this is called once.
func (l *Lease) TakeEnvelope() (Envelope, error) {
	d := l.decoded
	if d == nil {
		return Decode(l.Text())
	}
	l.decoded = nil // the envelope has a copy of the payload
	return d.envelope, d.err
}

// Gone reports whether the last call for the message got 404: the message expired,
// or somebody deleted it or cleared the queue. The service's documentation allows
// the same answer for a stale receipt, so this is no proof, but a reason to put
// another message. If that was not needed, it is absorbed as a duplicate.
func (l *Lease) Gone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone
}

// Renew hides the message from others for visibility from now on. It returns
// an error that wraps [ErrLost] if the service refuses the receipt. After any other
// error the outcome is unknown, and the caller tries again.
//
// Renew sends one request, without the SDK's retries. A renewal that took effect
// has changed the receipt, so a retry after a lost reply would be refused, as if
// another worker had the message. See [Lease.DoubtfulUntil].
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

// renewed records the outcome of a renewal for h. It does not count if a later claim
// was adopted during the call.
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

// HiddenUntil returns until when the message is hidden for this lease, by the last
// answer.
func (l *Lease) HiddenUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hidden.end()
}

// DoubtfulUntil returns until when the message may be hidden by an unanswered
// renewal; zero if no renewal since the last answer went unanswered. A refusal
// before that time does not prove that another worker has the message: that renewal
// may have changed the receipt.
func (l *Lease) DoubtfulUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doubtful
}

// Expired reports whether another worker may have the message at now, because the
// known visibility timeout has expired.
func (l *Lease) Expired(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hidden.over(now)
}

// Release makes the message visible to all after delay (0 at once). A message that
// this lease no longer holds counts as released; after an unanswered renewal
// it may stay hidden for the time that the renewal asked for.
func (l *Lease) Release(ctx context.Context, delay time.Duration) error {
	if err := l.update(ctx, nil, delay); err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("release message %s: %w", l.ID, err)
	}
	return nil
}

// Complete deletes the message. A message that is gone, or that another worker
// holds now, counts as completed: that worker finds the job's record final.
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

// Adopt continues this lease with a later claim of the same message, which this
// process made after the visibility timeout had expired, as in a storage outage.
// It does not wait for a call in flight, whose outcome no longer counts. Of two claims
// whose replies came in the other order, the older one changes nothing: its receipt is
// void. The caller must no longer use later.
func (l *Lease) Adopt(later *Lease) {
	later.mu.Lock()
	text, receipt, claim, hidden := later.text, later.receipt, later.claim, later.hidden
	later.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if claim < l.claim {
		return
	}
	l.text, l.receipt, l.claim, l.gone, l.hidden = text, receipt, claim, false, hidden
	l.doubtful, l.void = time.Time{}, false
	l.adopted++
}

// update sends Update Message with a new text, or with nil the current one. The
// request must always contain the text: the service would empty the message
// otherwise.
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

// errAdopted means that the refused receipt was an old one, since a later claim
// was adopted during the call.
var errAdopted = errors.New("this worker has claimed the message again in the meantime")

// withReceipt makes one call with the current receipt, after calls in flight, and keeps
// the receipt that the call returns, if any. If the service refuses the receipt, the
// error wraps [ErrLost].
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
		l.gone = queueerror.HasCode(err, queueerror.MessageNotFound)
	}
	switch {
	case isLost(err) && l.adopted != adopted:
		return fmt.Errorf("%w: %w", errAdopted, err)
	case isLost(err):
		return fmt.Errorf("%w: %w", ErrLost, err)
	case receipt != "" && l.adopted == adopted:
		l.receipt = receipt
	}
	return err
}

func (l *Lease) current() (text, receipt string, adopted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text, l.receipt, l.adopted
}

// next returns the text that the next update of the message sends.
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

// PutBack returns the message to the queue unprocessed, hidden for delay.
// The first time it writes the current time into the envelope, by the service's
// clock; a foreign message thereby becomes an envelope with a fixed id. If the
// envelope no longer fits, its payload moves to a blob.
//
// A time in the future counts as none: no worker wrote it, and with it the message
// could be put back for ever.
func (l *Lease) PutBack(ctx context.Context, e Envelope, payloads *Payloads, delay time.Duration) error {
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

// wasPutBack reports whether the envelope was put back before.
func (l *Lease) wasPutBack(e Envelope) bool {
	return !e.PutBackSince.IsZero() && !e.PutBackSince.After(l.ClaimedAt)
}

// ClearPutBack removes put_back_since from the message, and returns the envelope
// without it. It makes no call: the next update of the message, such as a renewal,
// sends the changed text. e is the decoded Text.
func (l *Lease) ClearPutBack(e Envelope) Envelope {
	if e.PutBackSince.IsZero() {
		return e
	}
	e.PutBackSince = time.Time{}
	if text, err := e.encode(maxJSON); err == nil { // it gets shorter, so it fits
		l.mu.Lock()
		defer l.mu.Unlock()
		l.rewritten = text
	}
	return e
}

// isLost reports whether the service refused a pop receipt as stale: with 400
// PopReceiptMismatch or 404 MessageNotFound.
func isLost(err error) bool {
	return queueerror.HasCode(err, queueerror.PopReceiptMismatch, queueerror.MessageNotFound)
}

// Denied reports whether the service denied the identity access: a role is missing, or
// the account's firewall is closed to it.
func Denied(err error) bool {
	var response *azcore.ResponseError
	return errors.As(err, &response) && (response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden)
}

// Throttled reports whether the service answered that it is busy: 503 or 429.
func Throttled(err error) bool {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		return false
	}
	return response.StatusCode == http.StatusServiceUnavailable || response.StatusCode == http.StatusTooManyRequests
}

// TooFast reports whether the service answered that calls come too fast: as [Throttled],
// or with 500 OperationTimedOut, as it also does then. Such a call may have taken effect.
func TooFast(err error) bool {
	return Throttled(err) || queueerror.HasCode(err, queueerror.OperationTimedOut)
}
