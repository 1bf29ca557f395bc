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
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/telemetry/tracing"
)

// DefaultParallel is the default number of records read at once, and the first number of jobs put
// at once.
const DefaultParallel = 16

// maxInFlight limits the payloads that are in memory at once, in bytes.
const maxInFlight = 2 * queue.MaxPayload

// ErrInterrupted means that a run was stopped before its input ended.
var ErrInterrupted = errors.New("interrupted")

// Producer puts jobs on a queue.
type Producer struct {
	// Queue receives the messages, First the messages of urgent jobs, and OnDemand the messages of
	// jobs for VMs of regular priority. Payloads receives the payloads that do not fit into a message.
	Queue    queue.Jobs
	First    *queue.Queue
	OnDemand *queue.Queue
	Payloads *queue.Payloads

	// ReadQueues, if set, is called before each put of a job for any VM, from many
	// goroutines, and may read how many queues there are.
	ReadQueues func(context.Context)

	// Parallel is how many jobs are put at once. 0 adapts to the storage, up to [MostParallel].
	Parallel int

	// Refused returns how many calls the storage refused so far because they came too fast. Optional.
	Refused func() int64

	// Skip, if set, returns whether not to put a job, and the status of its record.
	Skip func(id string) (found checkpoint.Status, skip bool)

	// TakeOver reopens the record of a job that is recorded as running, before its
	// message is put. The message can then claim the job at once, instead of an hour
	// after the last write of the record. It is for jobs whose owner is known to be
	// dead ([checkpoint.Store.Reopen]). A job whose record is final is skipped; a job
	// whose id stands for other work fails.
	TakeOver bool

	// Again lets jobs with an id of the caller's run again from scratch that have ended, whatever
	// their outcome: their records are opened before their messages are put
	// ([checkpoint.Store.Again]). A job that waits or runs fails. Jobs without a record are put
	// as ever.
	Again bool

	// CheckIDs reads the record of each job whose id the caller chose, before its
	// message is put: one call per job, Parallel at once. A run of more than
	// [readsForPage] jobs lists the records where that saves calls. A job whose record is final
	// is skipped, an open or running job is put with resume, and a job whose id stands
	// for other work fails. Jobs with a generated id cost nothing.
	CheckIDs bool

	// Unchecked, if set, is called once with the reason if records cannot be read. The
	// jobs are put all the same: the worker reads the record at their first delivery.
	Unchecked func(error)

	// UnknownKind, if set, is called once for each kind that no live worker has, by one
	// listing of the heartbeats in Workers for the whole run. With KnownKinds the jobs of
	// such a kind fail; otherwise they are put, since a worker may come later.
	UnknownKind func(*UnknownKindError)
	KnownKinds  bool
	Workers     *presence.Store

	// Records is required for TakeOver, Again and CheckIDs, and Name for the first two: it is
	// recorded as the last writer of records that are opened.
	Records *checkpoint.Store
	Name    string

	// Tracer records a span for each job that is put, which its message names as its
	// trace. Without it that is the span of the context, if there is one.
	Tracer *tracing.Tracer

	// DryRun does everything but write: no message is put, no payload stored, no
	// record reopened. Jobs that would be put are counted and reported as confirmed.
	DryRun bool

	// Confirmed, if set, is called for each job that the service has confirmed, and
	// Skipped for each that is not put. found is the status of the record that
	// existed before; empty if there was none or it was not read. An error ends the
	// run, since further jobs could not be reported.
	Confirmed func(j Job, found checkpoint.Status) error
	Skipped   func(j Job, found checkpoint.Status) error

	// Failed, if set, is called for each job that could not be put. An error ends the
	// run.
	Failed func(*JobError) error
}

// Summary is the result of a run.
type Summary struct {
	Put, Skipped, Failed int

	// Last is the place in the input of the last job that was taken; empty if none
	// was. All jobs up to it are put, skipped or failed, and none after it.
	Last string
}

// Run puts the jobs of a source. A [*JobError] of the source, or an invalid job, counts as
// failed and is passed to Failed; any other error ends the run, and so does a refusal that
// would affect every job. When ctx ends, Run takes no more jobs, waits for jobs in flight, and
// returns [ErrInterrupted].
//
// Confirmed, Skipped and Failed are called one at a time.
func (p *Producer) Run(ctx context.Context, jobs iter.Seq2[Spec, error]) (Summary, error) {
	r := &producerRun{
		producer: p,
		places:   newPlaces(p.Parallel, func() int { return len(p.Queue.All()) }, p.Refused, time.Now()),
		room:     semaphore.NewWeighted(maxInFlight),
		survey:   survey{records: p.Records},
	}
	for spec, err := range jobs {
		if !r.acquireSlot(ctx) {
			break
		}
		j, ok := r.accept(ctx, spec, err)
		if !ok {
			r.places.drop()
			continue
		}
		r.start(ctx, j)
	}
	r.puts.Wait()
	r.survey.end()
	return r.summary, r.stop
}

// Reads returns how many records are read at once: n, or the default where that is not positive.
func Reads(n int) int {
	if n <= 0 {
		return DefaultParallel
	}
	return n
}

// Check reads a source to its end without putting anything. It passes each invalid
// job to failed, and returns how many jobs the source has and how many of them are
// bad. The error is [ErrInterrupted] if ctx ended first, or one of the source that
// is not a [*JobError].
func Check(ctx context.Context, jobs iter.Seq2[Spec, error], failed func(*JobError)) (checked, bad int, err error) {
	for spec, err := range jobs {
		if ctx.Err() != nil {
			return checked, bad, ErrInterrupted
		}
		checked++
		if err == nil {
			_, err = newJob(spec)
		}
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

// createTimeout is the timeout of creating a container, including the SDK's retries.
const createTimeout = 20 * time.Second

// Create creates the queues and containers that do not exist. It is not an error if
// the identity may not create them: they usually exist, and otherwise the first use
// fails.
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

func createContainer(ctx context.Context, client *container.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	_, err := client.Create(ctx, nil)
	if err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
		return fmt.Errorf("create container %s: %w", name, err)
	}
	return nil
}

// unlessForbidden returns nil for a refusal because of a missing permission. A wrong
// key or token remains an error, since nothing works with it.
func unlessForbidden(err error) error {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	if ok && response.StatusCode == http.StatusForbidden && response.ErrorCode != string(bloberror.AuthenticationFailed) {
		return nil
	}
	return err
}
