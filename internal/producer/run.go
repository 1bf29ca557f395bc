package producer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"golang.org/x/sync/semaphore"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
)

// run is the state of one [Producer.Run].
type run struct {
	*Producer
	slots *semaphore.Weighted // one for each put under way
	room  *semaphore.Weighted // bytes of payload
	puts  sync.WaitGroup

	unreadable atomic.Bool // the records: checked no more

	mu      sync.Mutex
	summary Summary
	inARow  int   // puts that failed since the last one that did not
	stop    error // why no more jobs are taken
}

// acquireSlot waits for a free slot. It returns false when the run takes no more jobs.
func (r *run) acquireSlot(ctx context.Context) bool {
	err := r.slots.Acquire(ctx, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop == nil && (err != nil || ctx.Err() != nil) {
		r.stop = ErrInterrupted
	}
	return r.stop == nil
}

// accept notes what the source yielded, and reports whether it is to be put.
func (r *run) accept(j Job, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	bad, isJob := errors.AsType[*JobError](err)
	switch {
	case isJob:
		r.summary.Last = bad.Where
		r.fail(bad)
		return false
	case err != nil:
		r.stop = err
		return false
	}
	r.summary.Last = j.Where
	if r.Skip == nil {
		return true
	}
	found, skip := r.Skip(j.ID())
	if skip {
		r.skip(j, found)
	}
	return !skip
}

// start puts a job when there is room for it in memory. What was taken is put
// although ctx may end meanwhile; every call has its own time limit.
func (r *run) start(ctx context.Context, j Job) {
	ctx = context.WithoutCancel(ctx)
	_ = r.room.Acquire(ctx, j.Size()) // a context without end gives no error
	put := func() {
		defer r.slots.Release(1)
		defer r.room.Release(j.Size())
		found, err := r.put(ctx, j)
		r.record(j, found, err)
	}
	if r.DryRun && !r.readsRecord(j) {
		put() // there is nothing to wait for, and the jobs keep their order
		return
	}
	r.puts.Go(put)
}

// record notes what came of a put.
func (r *run) record(j Job, found checkpoint.Status, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.fail(&JobError{Where: j.Where, ID: j.ID(), Err: err})
		if isJobError(err) {
			break
		}
		r.inARow++
		if r.stop == nil && isFatal(err, r.inARow, parallel(r.Parallel)) {
			r.stop = err
		}
	case found.Final():
		r.inARow = 0
		r.skip(j, found)
	default:
		r.inARow = 0
		r.confirm(j, found)
	}
}

// confirm counts a job that was put. The caller holds mu.
func (r *run) confirm(j Job, found checkpoint.Status) {
	r.summary.Enqueued++
	if r.Confirmed == nil {
		return
	}
	if err := r.Confirmed(j, found); err != nil && r.stop == nil {
		r.stop = fmt.Errorf("job %s is enqueued, but its id cannot be told: %w", j.ID(), err)
	}
}

// skip counts a job that is not to be put. The caller holds mu.
func (r *run) skip(j Job, found checkpoint.Status) {
	r.summary.Skipped++
	if r.Skipped == nil {
		return
	}
	if err := r.Skipped(j, found); err != nil && r.stop == nil {
		r.stop = fmt.Errorf("job %s is skipped, but that cannot be told: %w", j.ID(), err)
	}
}

// fail counts a job that was not put. The caller holds mu.
func (r *run) fail(bad *JobError) {
	r.summary.Failed++
	if r.Failed != nil {
		r.Failed(bad)
	}
}

// put puts one job, and returns the status of the record that it found. When
// that is final, nothing was put.
func (r *run) put(ctx context.Context, j Job) (found checkpoint.Status, err error) {
	e := j.envelope
	e.EnqueuedAt, e.ChosenID = time.Now().UTC(), j.OwnID
	if r.readsRecord(j) {
		if found, err = r.find(ctx, j); err != nil || found.Final() {
			return found, err
		}
		e.Resume = found != "" // even a first delivery must read the record
	}
	if r.DryRun {
		return found, checkSize(e)
	}
	return found, r.send(ctx, e, j.delay)
}

// readsRecord reports whether the record of a job is read before its message is put. A
// new id has none.
func (p *Producer) readsRecord(j Job) bool { return j.OwnID && (p.TakeOver || p.CheckIDs) }

// find returns the status of a job's record, which with TakeOver it opens; empty
// where there is none, or where nobody may read it.
func (r *run) find(ctx context.Context, j Job) (checkpoint.Status, error) {
	if r.TakeOver {
		return r.reopen(ctx, j)
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

// checkSize reports why a message could not be sent, as far as that shows without
// sending it.
func checkSize(e queue.Envelope) error {
	if _, err := e.Encode(); !tooLarge(err) {
		return err
	}
	return nil // its payload goes to a blob
}

func tooLarge(err error) bool {
	_, ok := errors.AsType[*queue.TooLargeError](err)
	return ok
}

// reopen ends the claim on a job that is recorded as running, and returns the
// status that the record had; empty when there is no record.
func (p *Producer) reopen(ctx context.Context, j Job) (checkpoint.Status, error) {
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

// isJobError reports whether an error is about a single job, whatever the
// state of the storage.
func isJobError(err error) bool {
	return errors.Is(err, checkpoint.ErrOtherWork) || errors.Is(err, checkpoint.ErrReclaimed) ||
		errors.Is(err, checkpoint.ErrUnknownFormat)
}

// isFatal reports whether an error will meet every other job too: no right
// to put messages, no such queue, or a storage that has long been silent.
func isFatal(err error, inARow, parallel int) bool {
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
