package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// Spec describes a job to put. Only Kind is required.
type Spec struct {
	// ID is the job's id: one id has one outcome, however often it is put. Default: a
	// new UUID. An id of 1 to 128 of A-Z a-z 0-9 . _ ~ - is valid, if it neither starts
	// nor ends with a dot.
	ID string

	// Kind names the handler: 1 to 64 of A-Z a-z 0-9 . _ -
	Kind string

	// Payload is the handler's input: bytes ([]byte) as they are, and any other value as
	// JSON. Nil is an empty payload. A payload that does not fit into a message is put
	// into a blob, up to 64 MiB; larger input belongs in a blob that the payload names.
	Payload any

	// Delay is how long the job waits at least before it can start, up to 7 days.
	Delay time.Duration

	// Deadline is when the job should be done. It is passed to the handler. With
	// Estimate, which is how long the work takes on a VM that nothing interrupts (whole
	// seconds; 0 if that is not known), workers find out whether the job may miss it, and
	// move it to VMs of regular priority when it is interrupted, if the deployment has
	// any. Without an estimate they judge by the fraction that the handler reports.
	Deadline time.Time
	Estimate time.Duration

	// MaxRun limits the job's run time over all deliveries, and MaxSilence the time
	// between two reports of its handler, in addition to the limits of its kind. Whole
	// seconds; 0 is no limit.
	MaxRun, MaxSilence time.Duration

	// MaxFailures is how many failures in a row end the job as poison, if its kind allows as
	// many: 1 allows no second attempt. Evictions do not count. 0 is the limit of the kind.
	MaxFailures int

	// Inputs are the files that the job needs: its worker fetches them before it calls
	// the handler. They take at most 24 KiB as JSON; for more name a prefix or a
	// manifest.
	Inputs []job.Input

	// Group puts the job into a group of jobs, which [Filter] and [Client.WaitGroup]
	// select: 1 to 64 of A-Z a-z 0-9 . _ - . A put then creates the job's record, for one
	// call more; an id of your own needs none, since its record is not read before. A job
	// stays in its group: the error is [ErrOtherGroup] if the id was put in another, or in
	// none. Follow-up jobs (job.Job.Put) are in no group.
	Group string

	// OnDemand puts the job on the queue for VMs of regular priority, which are not
	// evicted.
	OnDemand bool

	// Urgent puts the job before the jobs that wait. Of four claims of a worker one is for the
	// others, so they wait longer and do not starve. A job is not Urgent and OnDemand at once.
	Urgent bool

	// Where is the job's place in your input, such as "line 3", for errors and results.
	// Optional.
	Where string
}

// Validate returns why the job cannot be put, as far as that is known without a call.
func (s Spec) Validate() error {
	spec, err := s.producerSpec()
	if err == nil {
		_, err = producer.NewJob(spec)
	}
	return err
}

// producerSpec encodes the payload.
func (s Spec) producerSpec() (producer.Spec, error) {
	payload, err := payloadOf(s.Payload)
	return producer.Spec{
		Where: s.Where, ID: s.ID, Kind: s.Kind, Payload: payload, Inputs: s.Inputs, Deadline: s.Deadline, OnDemand: s.OnDemand,
		Urgent: s.Urgent, Group: s.Group,
		Terms: producer.Terms{Delay: s.Delay, MaxRun: s.MaxRun, MaxSilence: s.MaxSilence, Estimate: s.Estimate,
			MaxFailures: s.MaxFailures},
	}, err
}

func payloadOf(v any) (queue.Payload, error) {
	switch data := v.(type) {
	case nil:
		return queue.Payload{}, nil
	case queue.Payload:
		return data, nil
	case []byte:
		return queue.BytesPayload(data), nil
	case json.RawMessage:
		return queue.JSONPayload(data)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return queue.Payload{}, fmt.Errorf("encode the payload: %w", err)
	}
	return queue.JSONPayload(raw)
}

// Specs yields jobs for [Client.PutMany].
func Specs(specs ...Spec) iter.Seq2[Spec, error] {
	return func(yield func(Spec, error) bool) {
		for _, spec := range specs {
			if !yield(spec, nil) {
				return
			}
		}
	}
}

// JobError is why one job was not put: Where is the job's place from its [Spec], ID the job's id, and
// Err the reason. Where and ID may be empty. It says nothing about other jobs.
type JobError = producer.JobError

// PutResult is the outcome of one put.
type PutResult struct {
	ID, Kind, Where string

	// Found is the status of the record that the job had before; empty if it had none, or
	// if the record was not read. It is open if a put of a job that runs again was cut short.
	Found Status

	// Skipped says that nothing was put, because the job has ended.
	Skipped bool

	// Err is why the job was not put, or may not have been; nil if the service has
	// confirmed it. Then the job can no longer be lost.
	Err error

	// NewID says that the id was generated.
	NewID bool

	// PayloadSize is the length of the payload in bytes, and Delay is the delay of the
	// [Spec].
	PayloadSize int64
	Delay       time.Duration

	// WorkSHA256 is the hash that the job's record will have: see [Job].
	WorkSHA256 string

	// Warning is why the job cannot meet its deadline; empty if it can, or has none.
	Warning string
}

// PutOptions are settings of [Client.PutMany].
type PutOptions struct {
	// Report, if set, is called with the result of each job: from other goroutines, but
	// one at a time. An error ends the run.
	Report func(PutResult) error

	// NoCheck leaves out the read of the record of each job with an id of its own: one
	// call less for each. A job that has ended then gets a message that has no effect.
	NoCheck bool

	// Unchecked, if set, is called once if records cannot be read. The jobs are put all
	// the same.
	Unchecked func(error)

	// UnknownKind, if set, is called once for each kind that no live worker of its queue
	// has, as a misspelt one: with an [*UnknownKindError]. The jobs are put all the same,
	// since a worker may come later. It costs one listing of the workers' heartbeats for a
	// PutMany.
	UnknownKind func(error)

	// KnownKinds lets jobs of such a kind fail with that error instead.
	KnownKinds bool

	// Skip, if set, returns whether to skip a job, and the status that it has. It is
	// called for each job in order, before its record is read: with the ids of one
	// [Client.List], it spares those reads.
	Skip func(id string) (found Status, skip bool)

	// Again lets jobs with an id of their own run again that have ended: from scratch, with the
	// given payload, which may be another one. Their results are gone, and their outcomes stay in
	// [Job].Runs. The error of a job that waits or runs is [ErrNotFinished]. It costs two calls
	// more for each, or one if there is no record.
	Again bool

	// TakeOver lets jobs that are recorded as running start again at once: their worker
	// is known to be dead. A worker that is alive loses its unsaved progress.
	TakeOver bool

	// DryRun does everything but write.
	DryRun bool
}

// PutSummary counts the outcomes of a run. Last is the place ([Spec].Where) of the last job that was
// taken: all jobs up to it are put, skipped or failed, and none after it.
type PutSummary = producer.Summary

// Put puts one job and returns its id. When it returns without an error the job cannot
// be lost. It costs one call, one a minute that reads how many queues there are, and one
// more for an id of your own, whose record is read first: a job that has ended is not put
// again, and that is no error ([Client.Get] has its status). The error is [ErrOtherWork] if the
// id was used for another kind or payload.
//
// After any other error the job may be on the queue. Putting it again with the same id
// is safe.
func (c *Client) Put(ctx context.Context, spec Spec) (id string, err error) {
	var result PutResult
	o := PutOptions{Report: func(r PutResult) error { result = r; return nil }}
	if c.unknownKind != nil && c.kindIsDue(spec.Kind, time.Now()) {
		o.UnknownKind = c.unknownKind
	}
	_, err = c.PutMany(ctx, Specs(spec), o)
	if result.Err != nil {
		err = result.Err
	}
	return result.ID, err
}

// kindPeriod is how long the answer holds whether live workers have a kind.
const kindPeriod = 10 * time.Minute

// kindIsDue reports whether to look which workers have a kind, and records that at now.
func (c *Client) kindIsDue(kind string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.checked[kind]; ok && now.Sub(at) < kindPeriod {
		return false
	}
	c.checked[kind] = now
	return true
}

// PutMany puts the jobs of a sequence, [Options].Parallel at once, each like
// [Client.Put]. It takes them from the sequence as it puts them, so that a sequence may
// be of any length.
//
// A [*JobError] of the sequence, or a job that cannot be put, counts as failed and is
// reported. Any other error ends the run: one of the sequence or of Report, a refusal
// that concerns every job, or an outage. When ctx ends, PutMany takes no more jobs,
// waits for the jobs that it has begun, and returns the cause.
func (c *Client) PutMany(ctx context.Context, jobs iter.Seq2[Spec, error], o PutOptions) (PutSummary, error) {
	p := &producer.Producer{
		Queue: c.stores.Jobs, ReadQueues: c.stores.Jobs.ReadToPut, First: c.stores.First, OnDemand: c.stores.OnDemand,
		Payloads: c.stores.Payloads, Records: c.stores.Records, Parallel: c.parallel, Refused: c.refused.Load, TakeOver: o.TakeOver,
		Again: o.Again, CheckIDs: !o.NoCheck, DryRun: o.DryRun, Name: c.name, Tracer: c.tracer, KnownKinds: o.KnownKinds,
		Workers: c.stores.Workers,
	}
	if o.Unchecked != nil {
		p.Unchecked = func(err error) { o.Unchecked(c.readable(err, toRead)) }
	}
	if o.UnknownKind != nil {
		p.UnknownKind = func(unknown *UnknownKindError) { o.UnknownKind(unknown) }
	}
	if o.Skip != nil {
		p.Skip = func(id string) (checkpoint.Status, bool) {
			found, skip := o.Skip(id)
			return checkpoint.Status(found), skip
		}
	}
	var own error // of the caller's, to be returned as it is
	if o.Report != nil {
		report := func(r PutResult) error {
			err := o.Report(r)
			if own == nil {
				own = err
			}
			return err
		}
		p.Confirmed = func(j producer.Job, found checkpoint.Status) error { return report(resultOf(j, found, false)) }
		p.Skipped = func(j producer.Job, found checkpoint.Status) error { return report(resultOf(j, found, true)) }
		p.Failed = func(bad *JobError) error {
			return report(PutResult{ID: bad.ID, Where: bad.Where, Err: c.readable(bad.Err, toPut)})
		}
	}
	sum, err := p.Run(ctx, producerSpecs(jobs))
	var source *sourceError
	switch {
	case errors.Is(err, producer.ErrInterrupted):
		err = context.Cause(ctx)
	case errors.As(err, &source):
		err = source.err
	case !errors.Is(err, own):
		err = c.readable(err, toPut)
	}
	return sum, err
}

// sourceError marks an error of the caller's sequence.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }

// producerSpecs encodes the payloads of jobs.
func producerSpecs(jobs iter.Seq2[Spec, error]) iter.Seq2[producer.Spec, error] {
	return func(yield func(producer.Spec, error) bool) {
		for spec, err := range jobs {
			var next producer.Spec
			if err == nil {
				if next, err = spec.producerSpec(); err != nil {
					err = &JobError{Where: spec.Where, ID: spec.ID, Err: err}
				}
			}
			if _, ok := errors.AsType[*JobError](err); !ok && err != nil {
				err = &sourceError{err}
			}
			if !yield(next, err) {
				return
			}
		}
	}
}

func resultOf(j producer.Job, found checkpoint.Status, skipped bool) PutResult {
	return PutResult{
		ID: j.ID(), Kind: j.Kind(), Where: j.Where, Found: Status(found), Skipped: skipped, NewID: !j.OwnID,
		PayloadSize: j.Size(), WorkSHA256: j.Work(), Delay: j.Delay(), Warning: j.Warning(time.Now()),
	}
}
