package producer

import (
	"cmp"
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
	"github.com/spotworker/spotworker/internal/telemetry/tracing"
)

// producerRun is the state of one [Producer.Run].
type producerRun struct {
	producer *Producer
	places   *places             // one for each put in flight
	room     *semaphore.Weighted // bytes of payload
	puts     sync.WaitGroup

	kinds kinds // of live workers; one goroutine accepts jobs

	unreadable atomic.Bool // the records, so that they are no longer checked
	survey     survey

	mu      sync.Mutex
	summary Summary
	failed  int   // puts since the last successful one
	stop    error // why the run takes no more jobs
}

// acquireSlot waits for a free slot. It returns false if the run takes no more jobs.
func (r *producerRun) acquireSlot(ctx context.Context) bool {
	err := r.places.take(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop == nil && (err != nil || ctx.Err() != nil) {
		r.stop = ErrInterrupted
	}
	return r.stop == nil
}

// accept records the job or error that the source yielded, and returns the job if it is
// to be put.
func (r *producerRun) accept(ctx context.Context, spec Spec, err error) (j Job, ok bool) {
	if err == nil {
		j, err = newJob(spec)
	}
	if err == nil {
		err = r.checkKind(ctx, j)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	bad, isJob := errors.AsType[*JobError](err)
	switch {
	case isJob:
		r.summary.Last = bad.Where
		r.fail(bad)
		return Job{}, false
	case err != nil:
		r.stop = err
		return Job{}, false
	}
	r.summary.Last = j.Where
	if r.producer.Skip == nil {
		return j, true
	}
	found, skip := r.producer.Skip(j.ID())
	if skip {
		r.skip(j, found)
	}
	return j, !skip
}

// checkKind reports a kind that no live worker has. It returns an error if that is why the
// job is not put.
func (r *producerRun) checkKind(ctx context.Context, j Job) error {
	p := r.producer
	if p.UnknownKind == nil && !p.KnownKinds {
		return nil
	}
	unknown, first := r.kinds.check(ctx, p.Workers, p.firstQueue(j), j.Kind())
	if unknown == nil {
		return nil
	}
	if p.KnownKinds {
		return &JobError{Where: j.Where, ID: j.ID(), Err: unknown}
	}
	if first {
		p.UnknownKind(unknown)
	}
	return nil
}

// start puts a job when there is room for it in memory. A job that was taken is put
// even if ctx ends: every call has its own timeout.
func (r *producerRun) start(ctx context.Context, j Job) {
	ctx = context.WithoutCancel(ctx)
	_ = r.room.Acquire(ctx, j.Size()) // never fails: the context does not end
	put := func() {
		defer func() { r.places.leave(time.Now()) }()
		defer r.room.Release(j.Size())
		found, err := r.put(ctx, j)
		r.record(j, found, err)
	}
	if r.producer.DryRun && !r.producer.readsRecord(j) {
		put() // no call to wait for, and the jobs keep their order
		return
	}
	r.puts.Go(put)
}

// record records the result of a put.
func (r *producerRun) record(j Job, found checkpoint.Status, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.fail(&JobError{Where: j.Where, ID: j.ID(), Err: err})
		if isJobError(err) {
			break
		}
		r.failed++
		if r.stop == nil && r.isFatal(err) {
			r.stop = err
		}
	case found.Final() && !r.producer.Again:
		r.failed = 0
		r.skip(j, found)
	default:
		r.failed = 0
		r.confirm(j, found)
	}
}

// confirm counts a job that was put. The caller holds mu.
func (r *producerRun) confirm(j Job, found checkpoint.Status) {
	r.summary.Put++
	if r.producer.Confirmed == nil {
		return
	}
	if err := r.producer.Confirmed(j, found); err != nil && r.stop == nil {
		r.stop = fmt.Errorf("job %s is enqueued, but its id cannot be printed: %w", j.ID(), err)
	}
}

// skip counts a job that is not put. The caller holds mu.
func (r *producerRun) skip(j Job, found checkpoint.Status) {
	r.summary.Skipped++
	if r.producer.Skipped == nil {
		return
	}
	if err := r.producer.Skipped(j, found); err != nil && r.stop == nil {
		r.stop = fmt.Errorf("job %s is skipped, but that cannot be printed: %w", j.ID(), err)
	}
}

// fail counts a job that was not put. The caller holds mu.
func (r *producerRun) fail(bad *JobError) {
	r.summary.Failed++
	if r.producer.Failed == nil {
		return
	}
	if err := r.producer.Failed(bad); err != nil && r.stop == nil {
		r.stop = fmt.Errorf("a job failed, but that cannot be printed: %w", err)
	}
}

// put puts one job, and returns the status of the record that it found. If the status is
// final, nothing was put, unless the job runs again.
func (r *producerRun) put(ctx context.Context, j Job) (found checkpoint.Status, err error) {
	e := j.envelope
	e.EnqueuedAt, e.ChosenID = time.Now().UTC(), j.OwnID
	if r.producer.DryRun && !r.producer.readsRecord(j) {
		return "", checkSize(e)
	}
	if r.producer.ReadQueues != nil && r.producer.apart(j) == nil {
		r.producer.ReadQueues(ctx)
	}
	record, err := r.recordFor(ctx, j)
	if err != nil || record.Status.Final() && !r.producer.Again {
		return record.Status, err
	}
	e.Resume, e.Again = record.Status != "" || j.Group() != "", record.Again // so that even the first delivery reads the record
	if r.producer.DryRun {
		return record.Status, checkSize(e)
	}
	return record.Status, r.producer.send(ctx, e, j)
}

// recordFor reads, creates or opens the record of a job before its message is put, as the
// settings say. It returns the status of the record that it found, empty for none, and the
// record's Again as it is now.
func (r *producerRun) recordFor(ctx context.Context, j Job) (found checkpoint.Record, err error) {
	runsAgain := r.producer.Again && j.OwnID
	if runsAgain {
		if found, err = r.again(ctx, j); err != nil || found.Version != 0 {
			return found, err
		}
	}
	switch {
	case j.Group() != "":
		return r.enlist(ctx, j)
	case r.producer.readsRecord(j) && !runsAgain:
		return r.find(ctx, j)
	}
	return checkpoint.Record{}, nil
}

// again opens the record of a job that has ended, if it has one.
func (r *producerRun) again(ctx context.Context, j Job) (found checkpoint.Record, err error) {
	if records := r.producer.Records; r.producer.DryRun {
		found, err = records.CheckAgain(ctx, j.delivery())
	} else {
		found, found.Again, err = records.Again(ctx, j.recorded(), r.producer.Name)
	}
	if bloberror.HasCode(err, bloberror.ContainerNotFound) {
		return checkpoint.Record{}, nil
	}
	return found, err
}

// enlist creates the record of a job of a group, so that the group has the job before any
// worker does. It returns the record that there was.
func (r *producerRun) enlist(ctx context.Context, j Job) (checkpoint.Record, error) {
	records := r.producer.Records
	find := func(d checkpoint.Delivery) (checkpoint.Record, error) { return records.Enlist(ctx, d, r.producer.Name) }
	if r.producer.DryRun {
		find = func(d checkpoint.Delivery) (checkpoint.Record, error) { return records.CheckGroup(ctx, d) }
	}
	found, err := find(j.recorded())
	switch {
	case r.producer.DryRun && bloberror.HasCode(err, bloberror.ContainerNotFound):
		return checkpoint.Record{}, nil
	case err == nil && found.Status == checkpoint.Running && r.producer.TakeOver:
		return r.producer.reopen(ctx, j)
	}
	return found, err
}

// readsRecord reports whether to read a job's record before its message is put. A
// generated id has no record.
func (p *Producer) readsRecord(j Job) bool { return j.OwnID && (p.TakeOver || p.CheckIDs || p.Again) }

// find returns a job's record, which it reopens if TakeOver is set; the zero value if there
// is none, or if it may not be read.
func (r *producerRun) find(ctx context.Context, j Job) (checkpoint.Record, error) {
	if r.producer.TakeOver {
		record, ruling, ok := r.survey.answer(ctx, j.delivery())
		if ok && (ruling == checkpoint.Create || ruling == checkpoint.Finish ||
			ruling == checkpoint.Acquire && record.Status != checkpoint.Running) {
			return record, nil // there is no claim to end
		}
		return r.producer.reopen(ctx, j)
	}
	if r.unreadable.Load() {
		return checkpoint.Record{}, nil
	}
	record, ruling, err := r.survey.lookup(ctx, j.delivery())
	switch {
	case bloberror.HasCode(err, bloberror.ContainerNotFound):
		return checkpoint.Record{}, nil
	case forbidden(err):
		if !r.unreadable.Swap(true) && r.producer.Unchecked != nil {
			r.producer.Unchecked(err)
		}
		return checkpoint.Record{}, nil
	case err != nil:
		return checkpoint.Record{}, err
	case ruling == checkpoint.Mismatch:
		return checkpoint.Record{}, fmt.Errorf("%w: its record has kind %q and is %s", checkpoint.ErrOtherWork, record.Kind, record.Status)
	case ruling == checkpoint.Unreadable:
		return checkpoint.Record{}, checkpoint.ErrUnknownFormat
	}
	return record, nil
}

// send puts a job's message. If it does not fit, its payload is first stored in a blob.
// The message names the span of the put, or the one in ctx, as its trace.
func (p *Producer) send(ctx context.Context, e queue.Envelope, j Job) error {
	to := cmp.Or(p.apart(j), p.Queue.For(e.ID))
	span := p.Tracer.Put(ctx, tracing.Message{Queue: to.Name(), JobID: e.ID, Kind: e.Kind})
	if e.Trace = span.Parent(""); span == nil {
		e.Trace = tracing.Parent(ctx)
	}
	err := to.PutAny(ctx, e, j.delay, p.Payloads)
	span.End(err)
	return err
}

// firstQueue returns the queue for the job, or the first of several: all workers that
// take from any take from that.
func (p *Producer) firstQueue(j Job) *queue.Queue {
	return cmp.Or(p.apart(j), p.Queue.All()[0])
}

// apart returns the queue for the job if it is for none of the queues of jobs, else nil.
func (p *Producer) apart(j Job) *queue.Queue {
	switch {
	case j.onDemand:
		return p.OnDemand
	case j.urgent:
		return p.First
	}
	return nil
}

// checkSize returns why a message could not be sent, as far as that is known without
// sending it.
func checkSize(e queue.Envelope) error {
	if _, err := e.Encode(); !tooLarge(err) {
		return err
	}
	return nil // its payload would be stored in a blob
}

func tooLarge(err error) bool {
	_, ok := errors.AsType[*queue.TooLargeError](err)
	return ok
}

// reopen ends the claim on a job that is recorded as running, and returns the record
// as it was; the zero value if there is none.
func (p *Producer) reopen(ctx context.Context, j Job) (record checkpoint.Record, err error) {
	if p.DryRun {
		record, err = p.Records.CheckReopen(ctx, j.delivery())
	} else {
		record, err = p.Records.Reopen(ctx, j.delivery(), p.Name)
	}
	if errors.Is(err, checkpoint.ErrNotFound) {
		return checkpoint.Record{}, nil
	}
	return record, err
}

// minInARow is the smallest number of failures in a row that ends a run.
const minInARow = 10

// isJobError reports whether an error concerns a single job and not the storage.
func isJobError(err error) bool {
	return errors.Is(err, checkpoint.ErrOtherWork) || errors.Is(err, checkpoint.ErrOtherGroup) || errors.Is(err, checkpoint.ErrReclaimed) ||
		errors.Is(err, checkpoint.ErrUnknownFormat) || errors.Is(err, checkpoint.ErrNotEnded)
}

// isFatal reports whether an error would affect every other job too: a missing
// permission, a missing queue, or a storage outage.
func (r *producerRun) isFatal(err error) bool {
	// A brief outage fails all calls in flight, and must not end the run.
	return forbidden(err) || r.failed >= max(minInARow, 2*r.places.now())
}

// forbidden reports whether the service refuses all such calls: for lack of
// permission, or because the queue or container does not exist.
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
