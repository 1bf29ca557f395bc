package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// Ended is what became of a job.
type Ended struct {
	ID string

	// Status is final.
	Status checkpoint.Status

	// Result is that of a job which is done.
	Result []byte

	// Reason says why a job is poison or was cancelled.
	Reason string

	// Err, if set, says why nothing can be known about the job: its id was used
	// for other work, or its record cannot be read. It has no status then.
	Err error
}

// errTelling marks an error of [Waiter.Ended].
var errTelling = errors.New("what became of a job cannot be told")

// judge tells what became of a job if its record says so.
func (w *Waiter) judge(ctx context.Context, r checkpoint.Record) (err error) {
	d, ok := w.waitsFor(r.ID)
	if !ok {
		return nil
	}
	ended := Ended{ID: r.ID}
	switch checkpoint.OnDelivery(&r, d, r.ReadAt) {
	case checkpoint.Finish:
		ended.Status, ended.Reason = r.Status, r.Reason
	case checkpoint.Mismatch:
		ended.Err = fmt.Errorf("%w (kind %q, %s); this message goes to the poison queue", checkpoint.ErrOtherWork, r.Kind, r.Status)
	case checkpoint.Unreadable:
		ended.Err = checkpoint.ErrUnknownFormat
	default:
		return nil
	}
	if ended.Status == checkpoint.Done {
		if ended.Result, err = w.Records.ResultOf(ctx, r); err != nil {
			return err
		}
	}
	return w.tell(ended)
}

func (w *Waiter) tell(ended Ended) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, ended.ID)
	if err := w.Ended(ended); err != nil {
		return fmt.Errorf("%w: job %s: %w", errTelling, ended.ID, err)
	}
	return nil
}
