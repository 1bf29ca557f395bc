package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/retry"
)

// Records are the records of jobs, as [checkpoint.Store] has them.
type Records interface {
	Read(ctx context.Context, id string) (checkpoint.Record, error)
	List(ctx context.Context, prefix string) iter.Seq2[checkpoint.Record, error]
	ResultOf(ctx context.Context, r checkpoint.Record) ([]byte, error)
}

// Waiter waits for jobs to end by polling their records. It keeps the id, kind and
// payload hash of each job in memory, and at most Parallel results at once.
type Waiter struct {
	// Records is read until all jobs have ended.
	Records Records

	// Parallel is how many records are read at once. Default [DefaultParallel].
	Parallel int

	// Ended is called with the outcome of each job, one at a time and in the order in
	// which they were read. An error ends the waiting.
	Ended func(Ended) error

	// Progress, if set, is called with each record that was read and is not final, one
	// at a time. It must be quick.
	Progress func(checkpoint.Record)

	mu      sync.Mutex // guards what follows
	pending map[string]checkpoint.Delivery
	listed  int // records in the last listing
}

// Add adds a job to wait for.
func (w *Waiter) Add(j Job) { w.add(j.delivery()) }

// AddID adds the job with that id to wait for, with any kind and payload.
func (w *Waiter) AddID(id string) { w.add(checkpoint.Delivery{ID: id}) }

func (w *Waiter) add(d checkpoint.Delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == nil {
		w.pending = map[string]checkpoint.Delivery{}
	}
	w.pending[d.ID] = d
}

// Pending returns how many jobs have not ended yet.
func (w *Waiter) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending)
}

// UnreadError means that ctx ended while records could not be read, so that jobs may have
// ended that [Waiter.Wait] did not report. Cause is the cause of ctx, Err the last error.
type UnreadError struct{ Cause, Err error }

func (e *UnreadError) Error() string {
	return fmt.Sprintf("%v; records of jobs cannot be read, so that some may have ended: %v", e.Cause, e.Err)
}

func (e *UnreadError) Unwrap() []error { return []error{e.Cause, e.Err} }

// UnreadRemark is the end of a sentence about jobs that have not ended: empty unless err is an
// [*UnreadError].
func UnreadRemark(err error) string {
	if e, ok := errors.AsType[*UnreadError](err); ok {
		return fmt.Sprintf("; some may have, since their records cannot be read: %v", e.Err)
	}
	return ""
}

// Wait returns nil when all jobs have ended. It returns early with the cause of ctx, in an
// [*UnreadError] if the last poll failed, with a refusal that will not pass, or with the last
// error if storage has failed for ten minutes. None of this affects the jobs. Wait may be
// called again.
func (w *Waiter) Wait(ctx context.Context) error {
	good := time.Now()
	var failed error // of the last poll
	for quiet := 1; ; quiet++ {
		began, before := time.Now(), w.Pending()
		err := w.poll(ctx)
		left := w.Pending()
		switch {
		case errors.Is(err, errReport):
			return err
		case left == 0:
			return nil
		case ctx.Err() != nil:
			if failed == nil && time.Since(began) > longestWait {
				failed = err // it has no answer
			}
			return ended(ctx, failed)
		case err == nil:
			good = time.Now()
		case forbidden(err) || time.Since(good) > maxOutage:
			return err
		}
		if failed = err; left < before {
			quiet = 1
		}
		if retry.Sleep(ctx, pollDelay(quiet, time.Since(began))) != nil {
			return ended(ctx, failed)
		}
	}
}

// ended is the error of a wait whose ctx has ended. failed is the error of the last poll.
func ended(ctx context.Context, failed error) error {
	if failed != nil {
		return &UnreadError{Cause: context.Cause(ctx), Err: failed}
	}
	return context.Cause(ctx)
}

// poll reads the records of all jobs once, and reports the jobs that have ended.
func (w *Waiter) poll(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(Reads(w.Parallel))
	reads := &reads{group: group}
	err := w.pollEach(ctx, reads)
	if groupErr := group.Wait(); groupErr != nil {
		return groupErr // the cause of the loop's end
	}
	return cmp.Or(reads.err, err)
}

// reads are the reads of one poll. A read that fails ends no other.
type reads struct {
	group *errgroup.Group
	mu    sync.Mutex
	err   error // the first
}

// start calls read in the group. Only an error of [Waiter.Ended] ends the poll.
func (r *reads) start(read func() error) {
	r.group.Go(func() error {
		err := read()
		if errors.Is(err, errReport) {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = cmp.Or(r.err, err)
		return nil
	})
}

// pollEach reads the records of all pending jobs, one by one or by a listing.
func (w *Waiter) pollEach(ctx context.Context, reads *reads) error {
	w.mu.Lock()
	ids := make([]string, 0, len(w.pending))
	for id := range w.pending {
		ids = append(ids, id)
	}
	listed := w.listed
	w.mu.Unlock()
	if byListing(len(ids), listed) {
		return w.pollList(ctx, reads)
	}
	slices.Sort(ids)
	for _, id := range ids {
		reads.start(func() error {
			record, err := w.Records.Read(ctx, id)
			if errors.Is(err, checkpoint.ErrNotFound) {
				return nil // no worker has claimed it yet
			}
			if err != nil {
				return err
			}
			return w.examine(ctx, record)
		})
	}
	return nil
}

// pollList reads all records of the deployment in a listing.
func (w *Waiter) pollList(ctx context.Context, reads *reads) error {
	n := 0
	for record, err := range w.Records.List(ctx, "") {
		if err != nil {
			return err
		}
		n++
		if _, ok := w.waitsFor(record.ID); ok && ctx.Err() == nil {
			reads.start(func() error { return w.examine(ctx, record) })
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed = n
	return nil
}

func (w *Waiter) waitsFor(id string) (checkpoint.Delivery, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d, ok := w.pending[id]
	return d, ok
}

// How often a [Waiter] polls.
const (
	// shortestWait and longestWait limit the time between two polls.
	shortestWait = 500 * time.Millisecond
	longestWait  = 5 * time.Second

	// readAtMost is the largest number of jobs whose records are always read one by
	// one, and listPage how many records one call of a listing returns.
	readAtMost = 64
	listPage   = 5000

	// maxOutage is how long all polls may fail before Wait returns.
	maxOutage = 10 * time.Minute
)

// pollDelay returns the time until the next poll, after that many polls in a row
// without news (1 after news). It is never shorter than the last poll took, so that
// long listings do not follow one another at once.
func pollDelay(quiet int, took time.Duration) time.Duration {
	return max(retry.Backoff{First: shortestWait, Max: longestWait}.Delay(quiet), took)
}

// byListing reports whether to list all records instead of reading one per job: for
// many jobs, if that takes fewer calls. listed is the number of records in the last
// listing, 0 before the first.
func byListing(jobs, listed int) bool {
	return jobs > readAtMost && jobs > listed/listPage
}

// Ended is the outcome of a job.
type Ended struct {
	ID string

	// Record is the job's record.
	Record checkpoint.Record

	// Status is the job's final status.
	Status checkpoint.Status

	// Result is the result of a job that is done.
	Result []byte

	// Reason is why a job is poison or was cancelled.
	Reason string

	// Err, if set, is why the outcome is unknown: the id was used for other work, or
	// the record cannot be read. Status is empty then.
	Err error
}

// errReport marks an error of [Waiter.Ended].
var errReport = errors.New("cannot report the job's outcome")

// examine reports the outcome of a job if its record has one.
func (w *Waiter) examine(ctx context.Context, r checkpoint.Record) (err error) {
	d, ok := w.waitsFor(r.ID)
	if !ok {
		return nil
	}
	if d.Kind == "" { // added by its id alone
		d.Kind, d.PayloadHash, d.Again = r.Kind, r.PayloadHash, r.Again
	}
	ended := Ended{ID: r.ID, Record: r}
	switch checkpoint.OnDelivery(&r, d, r.ReadAt) {
	case checkpoint.Finish:
		ended.Status, ended.Reason = r.Status, r.Reason
	case checkpoint.Mismatch:
		ended.Err = fmt.Errorf("%w (kind %q, %s); this message goes to the poison queue", checkpoint.ErrOtherWork, r.Kind, r.Status)
	case checkpoint.Unreadable:
		ended.Err = checkpoint.ErrUnknownFormat
	default:
		w.progress(r)
		return nil
	}
	if ended.Status == checkpoint.Done {
		if ended.Result, err = w.Records.ResultOf(ctx, r); err != nil {
			return err
		}
	}
	return w.report(ended)
}

func (w *Waiter) report(ended Ended) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.pending[ended.ID]; !ok {
		return nil // it is reported already
	}
	delete(w.pending, ended.ID)
	if err := w.Ended(ended); err != nil {
		return fmt.Errorf("%w (job %s): %w", errReport, ended.ID, err)
	}
	return nil
}

func (w *Waiter) progress(r checkpoint.Record) {
	if w.Progress == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Progress(r)
}
