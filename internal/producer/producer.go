package producer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/spotworker/spotworker/internal/checkpoint"
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

	// Skip, if set, says which jobs not to put, and the status of their record.
	Skip func(id string) (found checkpoint.Status, skip bool)

	// TakeOver opens the record of a job that is recorded as running before its
	// message is put, which may then claim the job at once instead of waiting
	// until the record has not been written for an hour. It is for jobs whose
	// owner is known to be dead ([checkpoint.Store.Reopen]). A job whose record is
	// final is skipped; one whose id stands for other work fails.
	TakeOver bool

	// CheckIDs reads the record of each job whose id came with it before its message
	// is put: one call, of which Parallel are made at once. A job whose record is
	// final is skipped, one that is open or running is put to resume it, and one
	// whose id stands for other work fails. Jobs with a new id cost nothing.
	CheckIDs bool

	// Unchecked, if set, is told once why records cannot be read. The jobs are put
	// all the same: their first delivery looks.
	Unchecked func(error)

	// Records are needed with TakeOver and CheckIDs, and Name with TakeOver: it goes
	// into the records that are opened as their last writer.
	Records *checkpoint.Store
	Name    string

	// DryRun does everything but write: no message is put, no payload stored,
	// no record opened. What would be enqueued counts and is told as confirmed.
	DryRun bool

	// Confirmed, if set, is told each job that the service has confirmed, and
	// Skipped each that is not put. found is the status of the record that was
	// there before; empty where there was none or nobody looked. An error ends
	// the run: nobody would learn of further jobs.
	Confirmed func(j Job, found checkpoint.Status) error
	Skipped   func(j Job, found checkpoint.Status) error

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
// Confirmed, Skipped and Failed are called one at a time.
func (p *Producer) Run(ctx context.Context, jobs iter.Seq2[Job, error]) (Summary, error) {
	r := &run{
		Producer: p,
		slots:    semaphore.NewWeighted(int64(parallel(p.Parallel))),
		room:     semaphore.NewWeighted(maxInFlight),
	}
	for j, err := range jobs {
		if !r.acquireSlot(ctx) {
			break
		}
		if !r.accept(j, err) {
			r.slots.Release(1)
			continue
		}
		r.start(ctx, j)
	}
	r.puts.Wait()
	return r.summary, r.stop
}

// parallel returns how many calls to make at once.
func parallel(n int) int {
	if n <= 0 {
		return DefaultParallel
	}
	return n
}

// Check reads a source to its end without putting anything. It passes each job
// that is none to failed and returns how many jobs the source has, and how many
// of them are bad. The error is [ErrInterrupted] when ctx ended first, or one of
// the source that is no [*JobError].
func Check(ctx context.Context, jobs iter.Seq2[Job, error], failed func(*JobError)) (checked, bad int, err error) {
	for _, err := range jobs {
		if ctx.Err() != nil {
			return checked, bad, ErrInterrupted
		}
		checked++
		jobError, ok := errors.AsType[*JobError](err)
		switch {
		case ok:
			bad++
			failed(jobError)
		case err != nil:
			return checked, bad, err
		}
	}
	return checked, bad, nil
}

// createTimeout bounds the creation of a container, the SDK's retries included.
const createTimeout = 20 * time.Second

// Create makes the queues and the named containers that are missing. An identity
// that may put messages but create nothing is no error here: what it uses is
// usually there, and if it is not, the first use says so.
func Create(ctx context.Context, queues []*queue.Queue, containers map[string]*container.Client) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, q := range queues {
		group.Go(func() error { return unlessForbidden(q.Create(ctx)) })
	}
	for name, client := range containers {
		group.Go(func() error { return unlessForbidden(createContainer(ctx, client, name)) })
	}
	return group.Wait()
}

// Reach reports whether there is such a queue, and writes nothing. An identity
// that may put messages but not look at the queue is no error: it is taken to be
// there.
func Reach(ctx context.Context, q *queue.Queue) (exists bool, err error) {
	_, err = q.Depth(ctx)
	if queueerror.HasCode(err, queueerror.QueueNotFound) {
		return false, nil
	}
	return true, unlessForbidden(err)
}

func createContainer(ctx context.Context, client *container.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	_, err := client.Create(ctx, nil)
	if err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
		return fmt.Errorf("create container %s: %w", name, err)
	}
	return nil
}

// unlessForbidden drops the refusals of an identity that the service knows. A
// wrong key or token is another matter: it can do nothing at all.
func unlessForbidden(err error) error {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	if ok && response.StatusCode == http.StatusForbidden && response.ErrorCode != string(bloberror.AuthenticationFailed) {
		return nil
	}
	return err
}
