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
	if !e.PutBackSince.IsZero() && !e.PutBackSince.After(l.ClaimedAt) {
		return l.Release(ctx, PutBackDelay(e.PutBackSince, l.ClaimedAt))
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
	err = l.update(ctx, &text, minPutBack)
	if err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("put back message %s: %w", l.ID, err)
	}
	return nil
}
