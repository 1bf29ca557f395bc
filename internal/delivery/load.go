package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/outbox"
	"github.com/spotworker/spotworker/internal/delivery/running"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/internal/telemetry/tracing"
	"github.com/spotworker/spotworker/job"
)

// loaded is an owned job with the data for its handler, and with the last reports that its record
// has and lacks.
type loaded struct {
	*owned
	job     job.Control
	files   *inputs.Held       // the job's input files; nil if it names none
	outputs *outputs.Set       // that the job has sent; nil without a container for them
	output  *joblog.Output     // the output and log lines of the job; nil if they are not kept
	lines   *slog.Logger       // for the handler: job.Logger
	trace   *tracing.Span      // of the handler
	watch   *running.Stopwatch // of the handler
	charged bool               // the record's Charge when the handler was called

	restored      *job.Progress // the state that the handler began with
	startFraction float64       // the fraction done when the handler was called

	followUps   putFollowUps
	saved       *job.Progress   // the state that was recorded last, as far as this delivery knows
	cost        checkpoint.Cost // of saving this job's state
	taking      atomic.Int64    // how long the handler needs to take a state, in nanoseconds
	handOver    atomic.Int64    // how long a hand-over takes, in nanoseconds; 0 if not known
	writeFailed bool            // the last write failed
}

// load loads what the handler needs: input files, payload, state and outputs. The memory of a
// payload from a blob is reserved until the handler drops it or returns.
func (o *owned) load(ctx context.Context) (l *loaded, out *outcome) {
	files, out := o.fetchInputs(ctx)
	if out != nil {
		return nil, out
	}
	free, out := o.reservePayload(ctx)
	defer func() {
		if out != nil {
			o.releaseInputs(files)
			if free != nil {
				free()
			}
		}
	}()
	if out != nil {
		return nil, out
	}
	payload, out := o.fetchPayload(ctx)
	if out != nil {
		return nil, out
	}
	start, out := o.restoreState(ctx)
	if out != nil {
		return nil, out
	}
	record := o.claim.Record()
	set, out := o.openOutputs(ctx, record)
	if out != nil {
		return nil, out
	}
	l = &loaded{
		owned: o, files: files, outputs: set, trace: o.span.Step("handler"), charged: record.Charge,
		restored: start, saved: start, startFraction: fractionOf(start, 0),
	}
	l.job = job.ControlOf(job.New(job.Spec{
		ID: o.envelope.ID, Kind: o.envelope.Kind, Payload: payload, Trace: l.trace.Parent(o.envelope.Trace),
		Attempt: record.Failures + 1, Deadline: o.envelope.Deadline,
	}, start))
	if files != nil {
		l.job.SetInputs(files.Folder, files.Files)
		l.job.Cleanup(func() { o.releaseInputs(files) })
	}
	if free != nil {
		l.job.OnDropPayload(free)
		l.job.Cleanup(free)
	}
	l.job.OnPut(l.putFollowUp)
	l.job.OnSaveInterval(l.saveInterval)
	if set != nil {
		l.job.OnOutputs(&outbox.Outbox{Set: set, Caller: outputCaller{o.claimed}})
	}
	l.openLog(record)
	l.reportStart(record)
	o.log.InfoContext(ctx, "job started", "generation", record.Generation, "attempt", record.Failures+1, "resumed_at", record.Fraction,
		"enqueued_at", cmp.Or(o.envelope.EnqueuedAt, o.lease.InsertedAt))
	l.watch = o.env.running.Start(start)
	o.claim.SetFacts(l.facts)
	return l, nil
}

// reservePayload waits for memory for the payload, if that is in a blob. The message
// is renewed while it waits. free may be called more than once; it is nil for a payload that
// is in the message.
func (o *owned) reservePayload(ctx context.Context) (free func(), out *outcome) {
	ref := o.envelope.Payload.Ref()
	if ref == nil || ref.Size > queue.MaxPayload {
		return nil, nil
	}
	size := max(ref.Size, 0)
	if !o.env.payloadMemory.TryAcquire(size) {
		o.log.InfoContext(ctx, "job waits for memory: the payloads of other jobs take all of it", "payload_bytes", size)
		if err := o.env.payloadMemory.Acquire(ctx, size); err != nil {
			return nil, o.ends(stopped(ctx, errors.New("wait for payload memory")))
		}
	}
	return sync.OnceFunc(func() { o.env.payloadMemory.Release(size) }), nil
}

// fetchPayload fetches the payload. A first delivery whose payload blob is gone may be
// a duplicate of a job that is done: the record shows that.
func (o *owned) fetchPayload(ctx context.Context) ([]byte, *outcome) {
	var payload []byte
	err := o.retry(ctx, "load the job's payload", func() (err error) {
		payload, err = o.env.Stores.Payloads.Load(ctx, o.envelope)
		return err
	})
	switch {
	case err == nil:
		return payload, nil
	case !errors.Is(err, queue.ErrPayload):
		return nil, o.ends(stopped(ctx, err))
	}
	o, out := o.again(ctx)
	if out != nil {
		return nil, out
	}
	return nil, o.ends(&outcome{action: poison, reason: err.Error()})
}

// again returns the job itself if its record is known to exist. Otherwise it looks for the record,
// and acquires or creates it if the rules allow.
func (o *owned) again(ctx context.Context) (*owned, *outcome) {
	if o.claim.Exists() {
		return o, nil
	}
	return o.lookupAndOwn(ctx)
}

// restoreState reads the recorded state, nil on a fresh start.
func (o *owned) restoreState(ctx context.Context) (*job.Progress, *outcome) {
	var snapshot *checkpoint.Snapshot
	err := o.retry(ctx, "restore the job's state", func() (err error) {
		snapshot, err = o.claim.Restore(ctx)
		return err
	})
	switch conflict := asConflict(err); {
	case conflict != nil:
		return nil, o.ends(outcomeOf(conflict))
	case errors.Is(err, checkpoint.ErrDamaged):
		return nil, o.fails(err)
	case err != nil:
		return nil, o.ends(stopped(ctx, err))
	case snapshot == nil:
		return nil, nil
	}
	return &job.Progress{
		State: snapshot.State, Stream: snapshot.Stream, Version: snapshot.Version, Needs: snapshot.Needs, Fraction: snapshot.Fraction,
		Text: snapshot.Text,
	}, nil
}

// fails returns the outcome of a job whose handler cannot be called. It has no failure class, and
// does not say on which machine it failed.
func (o *owned) fails(err error) *outcome {
	return o.ends(decide(&runEnd{err: err}, o.claim.After(checkpoint.Snapshot{}, false), o.kind.limits))
}

// openOutputs makes the set of the job's outputs, with the outputs of the state from
// which it continues. For a job without outputs it makes no call.
func (o *owned) openOutputs(ctx context.Context, record checkpoint.Record) (*outputs.Set, *outcome) {
	hash := record.Outputs.Hash
	if o.env.Stores.Outputs == nil && hash == "" {
		return nil, nil
	}
	if o.env.Stores.Outputs == nil { // to commit it would be to commit a part
		return nil, o.fails(job.Unavailable(errors.New("the job has outputs, and this worker has no container for them")))
	}
	files, err := o.listOutputs(ctx, hash)
	switch {
	case errors.Is(err, outputs.ErrManifest):
		return nil, o.fails(fmt.Errorf("%w; put it back, or start the job over with spotctl poison replay --from-scratch", err))
	case err != nil:
		return nil, o.ends(stopped(ctx, err))
	}
	return o.env.Stores.Outputs.NewSet(record.ID, record.Generation, o.claim.Token(), outputs.Limits(o.kind.outputs), hash, files), nil
}

// listOutputs reads a list of the job's outputs.
func (o *owned) listOutputs(ctx context.Context, hash string) (files []outputs.File, err error) {
	err = o.retry(ctx, "read the list of the job's outputs", func() (err error) {
		files, err = o.env.Stores.Outputs.Files(ctx, o.envelope.ID, hash)
		return err
	})
	return files, err
}

// openLog opens the job's own log, and the logger for its handler. From now on
// every write of the record has the end of the log.
func (l *loaded) openLog(record checkpoint.Record) {
	l.lines = l.log.With("generation", record.Generation)
	l.output = l.env.logKeeper.Open(record.ID, record.CreatedAt, record.Generation, l.env.owner, record.Log)
	if l.output != nil {
		l.lines = slog.New(l.output.Handler(l.lines.Handler()))
	}
}

// reportStart reports that the handler is about to be called.
func (l *loaded) reportStart(record checkpoint.Record) {
	tell := l.env.Observe
	switch {
	case l.restored != nil:
		tell(observe.Started{How: observe.StartedResumed})
	case record.Claims() > 1:
		tell(observe.Started{How: observe.StartedAgain})
	default:
		tell(observe.Started{How: observe.StartedFirst})
	}
	switch waited := max(time.Since(l.written), 0); {
	case record.Claims() <= 1:
		tell(observe.Waited{After: observe.AfterPut, For: l.sincePut()})
	case !l.wasOpen:
		tell(observe.Waited{After: observe.AfterExit, For: waited})
	case record.Failures > 0:
		tell(observe.Waited{After: observe.AfterFailure, For: waited})
	default:
		tell(observe.Waited{After: observe.AfterRelease, For: waited})
	}
}
