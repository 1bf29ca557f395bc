package producer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/spotworker/spotworker/internal/queue"
)

// DefaultParallel is how many jobs are put at once unless said otherwise.
const DefaultParallel = 16

// maxInFlight bounds the payloads that are held in memory at once, in bytes.
// It has room for a largest one, or for many usual ones.
const maxInFlight = 2 * queue.MaxPayload

// ErrInterrupted says that a run was told to stop before its input ended.
var ErrInterrupted = errors.New("interrupted")

// Producer puts jobs on a queue.
type Producer struct {
	// Queue takes the messages, Payloads what does not fit into one.
	Queue    *queue.Queue
	Payloads *queue.Payloads

	// Parallel is how many jobs are put at once. Default [DefaultParallel].
	Parallel int

	// Skip, if set, says which jobs not to put.
	Skip func(id string) bool

	// Confirmed, if set, is told each id that the service has confirmed. An
	// error ends the run: nobody would learn of further ids.
	Confirmed func(id string) error

	// Failed, if set, is told of each job that was not put.
	Failed func(*JobError)
}

// Summary is what came of a run.
type Summary struct {
	Enqueued, Skipped, Failed int

	// Last is the place of the last job that was taken; empty if none was. All
	// jobs up to it are enqueued, skipped or failed, and none after it.
	Last string
}

// Run puts the jobs of a source. An error of the source that is a [*JobError]
// counts as failed and is passed to Failed; any other ends the run, and so does
// a refusal that would meet every job. When ctx ends, Run takes no more jobs,
// waits for those under way, and returns [ErrInterrupted].
//
// Confirmed and Failed are called one at a time.
func (p *Producer) Run(ctx context.Context, jobs iter.Seq2[Job, error]) (Summary, error) {
	r := &run{
		Producer: p,
		slots:    semaphore.NewWeighted(int64(p.parallel())),
		room:     semaphore.NewWeighted(maxInFlight),
	}
	for j, err := range jobs {
		if !r.enter(ctx) {
			break
		}
		if !r.take(j, err) {
			r.slots.Release(1)
			continue
		}
		r.start(ctx, j)
	}
	r.puts.Wait()
	return r.summary, r.stop
}

func (p *Producer) parallel() int {
	if p.Parallel <= 0 {
		return DefaultParallel
	}
	return p.Parallel
}

// run is the state of one Run.
type run struct {
	*Producer
	slots *semaphore.Weighted // one for each put under way
	room  *semaphore.Weighted // bytes of payload
	puts  sync.WaitGroup

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
	if r.Skip != nil && r.Skip(j.ID()) {
		r.summary.Skipped++
		return false
	}
	return true
}

// start puts a job when there is room for it in memory. What was taken is put
// although ctx may end meanwhile; every call has its own time limit.
func (r *run) start(ctx context.Context, j Job) {
	ctx = context.WithoutCancel(ctx)
	_ = r.room.Acquire(ctx, j.size()) // a context without end gives no error
	r.puts.Go(func() {
		defer r.slots.Release(1)
		defer r.room.Release(j.size())
		r.record(j, r.put(ctx, j))
	})
}

// record notes what came of a put.
func (r *run) record(j Job, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.fail(&JobError{Where: j.Where, Err: err})
		r.inARow++
		if r.stop == nil && concernsAll(err, r.inARow, r.parallel()) {
			r.stop = err
		}
		return
	}
	r.inARow = 0
	r.summary.Enqueued++
	if r.Confirmed == nil {
		return
	}
	if err := r.Confirmed(j.ID()); err != nil && r.stop == nil {
		r.stop = fmt.Errorf("job %s is enqueued, but its id cannot be told: %w", j.ID(), err)
	}
}

// fail counts a job that was not put. The caller holds mu.
func (r *run) fail(bad *JobError) {
	r.summary.Failed++
	if r.Failed != nil {
		r.Failed(bad)
	}
}
