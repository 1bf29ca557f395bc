package producer

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
)

// put puts one job, and returns the status of the record that it found. When
// that is final, nothing was put.
func (p *Producer) put(ctx context.Context, j Job) (found checkpoint.Status, err error) {
	e := j.envelope
	e.EnqueuedAt = time.Now().UTC()
	if p.TakeOver {
		if found, err = p.open(ctx, j); err != nil || found.Final() {
			return found, err
		}
		e.Resume = found != "" // even a first delivery must read the record
	}
	if p.DryRun {
		return found, check(e)
	}
	return found, p.send(ctx, e, j.delay)
}

// send puts a message. One that does not fit leaves its payload in a blob first,
// which a repeat finds there.
func (p *Producer) send(ctx context.Context, e queue.Envelope, delay time.Duration) error {
	err := p.Queue.Put(ctx, e, delay)
	if !tooLarge(err) {
		return err
	}
	e, err = p.Payloads.Offload(ctx, e)
	if err != nil {
		return err
	}
	return p.Queue.Put(ctx, e, delay)
}

// check reports why a message could not be sent, as far as that shows without
// sending it.
func check(e queue.Envelope) error {
	if _, err := e.Encode(); !tooLarge(err) {
		return err
	}
	return nil // its payload goes to a blob
}

func tooLarge(err error) bool {
	_, ok := errors.AsType[*queue.TooLargeError](err)
	return ok
}

// open ends the claim on a job that is recorded as running, and returns the
// status that the record had; empty when there is no record.
func (p *Producer) open(ctx context.Context, j Job) (checkpoint.Status, error) {
	var record checkpoint.Record
	var err error
	if p.DryRun {
		record, err = p.Records.CanOpen(ctx, j.delivery())
	} else {
		record, err = p.Records.Open(ctx, j.delivery(), p.Name)
	}
	if errors.Is(err, checkpoint.ErrNotFound) {
		return "", nil
	}
	return record.Status, err
}

// minInARow is the least number of failures in a row that ends a run.
const minInARow = 10

// concernsOne reports whether an error is about a single job, whatever the
// state of the storage.
func concernsOne(err error) bool {
	return errors.Is(err, checkpoint.ErrOtherWork) || errors.Is(err, checkpoint.ErrClaimedAnew) ||
		errors.Is(err, checkpoint.ErrUnknownFormat)
}

// concernsAll reports whether an error will meet every other job too: no right
// to put messages, no such queue, or a storage that has long been silent.
func concernsAll(err error, inARow, parallel int) bool {
	// One bad moment fails all the calls under way, and is not the end.
	return forbidden(err) || inARow >= max(minInARow, 2*parallel)
}

// forbidden reports whether the service refuses such calls altogether: no right
// to make them, or nothing there to make them on.
func forbidden(err error) bool {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok || bloberror.HasCode(err, bloberror.BlobNotFound) {
		return false
	}
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return true
	}
	return false
}
