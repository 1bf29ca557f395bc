package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/spotworker/spotworker/internal/checkpoint"
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

// enter waits for a free slot. It returns false when the run takes no more jobs.
func (r *run) enter(ctx context.Context) bool {
	err := r.slots.Acquire(ctx, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop == nil && (err != nil || ctx.Err() != nil) {
		r.stop = ErrInterrupted
	}
	return r.stop == nil
}

// take notes what the source yielded, and reports whether it is to be put.
func (r *run) take(j Job, err error) bool {
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
	if r.DryRun && !r.reads(j) {
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
		if concernsOne(err) {
			break
		}
		r.inARow++
		if r.stop == nil && concernsAll(err, r.inARow, parallel(r.Parallel)) {
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
