package queue

import (
	"context"
	"errors"
	"time"
)

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
