package queue

import (
	"context"
	"errors"
	"fmt"
	"time"
)

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
