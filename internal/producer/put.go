package producer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
)

// put puts one job, and returns the status of the record that it found. When
// that is final, nothing was put.
func (r *run) put(ctx context.Context, j Job) (found checkpoint.Status, err error) {
	e := j.envelope
	e.EnqueuedAt, e.ChosenID = time.Now().UTC(), j.OwnID
	if r.reads(j) {
		if found, err = r.find(ctx, j); err != nil || found.Final() {
			return found, err
		}
		e.Resume = found != "" // even a first delivery must read the record
	}
	if r.DryRun {
		return found, check(e)
	}
	return found, r.send(ctx, e, j.delay)
}

// reads reports whether the record of a job is read before its message is put. A
// new id has none.
func (p *Producer) reads(j Job) bool { return j.OwnID && (p.TakeOver || p.CheckIDs) }

// find returns the status of a job's record, which with TakeOver it opens; empty
// where there is none, or where nobody may read it.
func (r *run) find(ctx context.Context, j Job) (checkpoint.Status, error) {
	if r.TakeOver {
		return r.open(ctx, j)
	}
	if r.unreadable.Load() {
		return "", nil
	}
	record, ruling, err := r.Records.Lookup(ctx, j.delivery())
	switch {
	case bloberror.HasCode(err, bloberror.ContainerNotFound):
		return "", nil
	case forbidden(err):
		if !r.unreadable.Swap(true) && r.Unchecked != nil {
			r.Unchecked(err)
		}
		return "", nil
	case err != nil:
		return "", err
	case ruling == checkpoint.Mismatch:
		return "", fmt.Errorf("%w: its record has kind %q and is %s", checkpoint.ErrOtherWork, record.Kind, record.Status)
	case ruling == checkpoint.Unreadable:
		return "", checkpoint.ErrUnknownFormat
	}
	return record.Status, nil
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
		record, err = p.Records.CheckReopen(ctx, j.delivery())
	} else {
		record, err = p.Records.Reopen(ctx, j.delivery(), p.Name)
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
