package queue

import (
	"context"
	"errors"
	"time"
)

// PutMoved adds the message of a job that comes from another queue with its
// record. It says resume, so that even its first delivery goes on from there, and
// begins anew to count how long it is put back. It needs nothing of the message
// it replaces: a foreign one becomes an envelope whose id is fixed, and a payload
// that does not fit any more moves to a blob.
//
// The old message must be deleted only afterwards. Doing both again after a crash
// makes a duplicate, which costs nothing but a look.
func (q *Queue) PutMoved(ctx context.Context, e Envelope, payloads *Payloads) error {
	e.Resume, e.PutBackSince = true, time.Time{}
	err := q.Put(ctx, e, 0)
	if _, ok := errors.AsType[*TooLargeError](err); !ok {
		return err
	}
	if e, err = payloads.Offload(ctx, e); err != nil {
		return err
	}
	return q.Put(ctx, e, 0)
}
