package delivery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/outbox"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/telemetry/tracing"
	"github.com/spotworker/spotworker/job"
)

// loader loads the payload, inputs, state and outputs for the handler of an acquired job.
type loader struct {
	msg     *message
	rec     *recorder
	acq     *acquisition
	cancels *cancelCheck
	rules   *kindRules
	inputs  *inputs.Held  // the job's input files; nil if it names none
	span    *tracing.Span // of the handler
}

// load makes the job as its handler sees it: its payload and its recorded state. The
// memory of a payload from a blob is reserved until the handler drops it or returns.
func (l *loader) load(ctx context.Context) (*attempt, *outcome) {
	free, out := l.reservePayload(ctx)
	if out != nil {
		return nil, out
	}
	attempt, out := l.loadInto(ctx, free)
	if out != nil && free != nil {
		free()
	}
	return attempt, out
}

// loadInto is load into the memory that free frees; nil for a payload that is in the
// message.
func (l *loader) loadInto(ctx context.Context, free func()) (*attempt, *outcome) {
	payload, out := l.fetchPayload(ctx)
	if out != nil {
		return nil, out
	}
	start, out := l.restoreState(ctx)
	if out != nil {
		return nil, out
	}
	record := l.rec.claim.Record()
	l.rec.saved, l.rec.restored = start, start
	l.span = l.msg.span.Step("handler")
	l.rec.job = job.ControlOf(job.New(job.Spec{
		ID: l.msg.envelope.ID, Kind: l.msg.envelope.Kind, Payload: payload, Trace: l.span.Parent(l.msg.envelope.Trace),
		Attempt: record.Failures + 1, Deadline: l.msg.envelope.Deadline,
	}, start))
	if l.inputs != nil {
		l.rec.job.SetInputs(l.inputs.Folder, l.inputs.Files)
		l.rec.job.Cleanup(l.releaseInputs)
	}
	if free != nil {
		l.rec.job.OnDropPayload(free)
		l.rec.job.Cleanup(free)
	}
	l.rec.job.OnPut(l.putFollowUp)
	l.rec.job.OnSaveInterval(l.rec.saveInterval)
	if out := l.openOutputs(ctx); out != nil {
		return nil, out
	}
	a := &attempt{msg: l.msg, rec: l.rec, rules: l.rules, cancels: l.cancels, span: l.span, log: l.openLog(record)}
	l.reportStart(record, start != nil)
	l.msg.log.InfoContext(ctx, "job started", "generation", record.Generation, "attempt", record.Failures+1, "resumed_at", record.Fraction,
		"enqueued_at", cmp.Or(l.msg.envelope.EnqueuedAt, l.msg.lease.InsertedAt))
	return a, nil
}

// reservePayload waits for memory for the payload, if that is in a blob. The message
// is renewed while it waits. free may be called more than once; it is nil for a payload that
// is in the message.
func (l *loader) reservePayload(ctx context.Context) (free func(), out *outcome) {
	ref := l.msg.envelope.Payload.Ref()
	if ref == nil || ref.Size > queue.MaxPayload {
		return nil, nil
	}
	size := max(ref.Size, 0)
	if !l.msg.runner.payloadMemory.TryAcquire(size) {
		l.msg.log.InfoContext(ctx, "job waits for memory: the payloads of other jobs take all of it", "payload_bytes", size)
		if err := l.msg.runner.payloadMemory.Acquire(ctx, size); err != nil {
			return nil, stopped(ctx, errors.New("wait for payload memory"))
		}
	}
	return sync.OnceFunc(func() { l.msg.runner.payloadMemory.Release(size) }), nil
}

// fetchPayload fetches the payload. A first delivery whose payload blob is gone may be
// a duplicate of a job that is done: the record shows that.
func (l *loader) fetchPayload(ctx context.Context) ([]byte, *outcome) {
	var payload []byte
	err := l.msg.retry(ctx, "load the job's payload", func() (err error) {
		payload, err = l.msg.runner.Stores.Payloads.Load(ctx, l.msg.envelope)
		return err
	})
	switch {
	case err == nil:
		return payload, nil
	case !errors.Is(err, queue.ErrPayload):
		return nil, stopped(ctx, err)
	}
	if !l.rec.claim.Exists() {
		l.rec.dropClaim()
		if out := l.acq.lookup(ctx); out != nil {
			return nil, out
		}
	}
	return nil, &outcome{action: poison, reason: err.Error()}
}

// restoreState reads the recorded state, nil on a fresh start.
func (l *loader) restoreState(ctx context.Context) (*job.Progress, *outcome) {
	var snapshot *checkpoint.Snapshot
	err := l.msg.retry(ctx, "restore the job's state", func() (err error) {
		snapshot, err = l.rec.claim.Restore(ctx)
		return err
	})
	switch conflict := asConflict(err); {
	case conflict != nil:
		return nil, outcomeOf(conflict)
	case errors.Is(err, checkpoint.ErrDamaged):
		return nil, decide(&runEnd{err: err}, l.rec.after(checkpoint.Snapshot{}), l.rules.limits)
	case err != nil:
		return nil, stopped(ctx, err)
	case snapshot == nil:
		return nil, nil
	}
	return progressOf(snapshot), nil
}

func progressOf(s *checkpoint.Snapshot) *job.Progress {
	return &job.Progress{State: s.State, Stream: s.Stream, Version: s.Version, Needs: s.Needs, Fraction: s.Fraction, Text: s.Text}
}

// openOutputs makes the set of the job's outputs, with the outputs of the state from
// which it continues. For a job without outputs it makes no call.
func (l *loader) openOutputs(ctx context.Context) *outcome {
	record := l.rec.claim.Record()
	hash := record.Outputs.Hash
	if l.msg.runner.Stores.Outputs == nil && hash == "" {
		return nil
	}
	if l.msg.runner.Stores.Outputs == nil { // to commit it would be to commit a part
		return decide(&runEnd{err: job.Unavailable(errors.New("the job has outputs, and this worker has no container for them"))},
			checkpoint.Attempts{}, l.rules.limits)
	}
	files, err := l.rec.listOutputs(ctx, hash)
	switch {
	case errors.Is(err, outputs.ErrManifest):
		err = fmt.Errorf("%w; put it back, or start the job over with spotctl poison replay --from-scratch", err)
		return decide(&runEnd{err: err}, l.rec.after(checkpoint.Snapshot{}), l.rules.limits)
	case err != nil:
		return stopped(ctx, err)
	}
	l.rec.outputs = l.msg.runner.Stores.Outputs.NewSet(record.ID, record.Generation, l.rec.claim.Token(),
		outputs.Limits(l.rules.outputs), hash, files)
	l.rec.job.OnOutputs(&outbox.Outbox{Set: l.rec.outputs, Caller: outputCaller{l.msg}})
	return nil
}

// listOutputs reads a list of the job's outputs.
func (r *recorder) listOutputs(ctx context.Context, hash string) (files []outputs.File, err error) {
	err = r.msg.retry(ctx, "read the list of the job's outputs", func() (err error) {
		files, err = r.msg.runner.Stores.Outputs.Files(ctx, r.msg.envelope.ID, hash)
		return err
	})
	return files, err
}

// openLog opens the job's own log, and returns the logger for its handler. From now on
// every write of the record has the end of the log.
func (l *loader) openLog(record checkpoint.Record) *slog.Logger {
	log := l.msg.log.With("generation", record.Generation)
	l.rec.output = l.msg.runner.logKeeper.Open(record.ID, record.CreatedAt, record.Generation, l.msg.runner.owner, record.Log)
	if l.rec.output == nil {
		return log
	}
	return slog.New(l.rec.output.Handler(log.Handler()))
}

// putFollowUps are the follow-up jobs that this delivery has put, for the next writes of the
// record.
type putFollowUps struct {
	mu    sync.Mutex
	names checkpoint.FollowUps
}

func (p *putFollowUps) add(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names = p.names.With(checkpoint.FollowUps(id))
}

// addTo returns the recorded names together with the names of this delivery.
func (p *putFollowUps) addTo(recorded checkpoint.FollowUps) checkpoint.FollowUps {
	p.mu.Lock()
	defer p.mu.Unlock()
	return recorded.With(p.names)
}

// putFollowUp puts a follow-up job of this one on the queue of jobs. Its id may have
// been put before, by an earlier run of the handler.
func (l *loader) putFollowUp(ctx context.Context, id string, f job.FollowUp) error {
	if err := l.cancels.confirmOwnership(ctx); err != nil {
		return job.Unavailable(err)
	}
	e := queue.Envelope{
		ID: id, Kind: f.Kind, EnqueuedAt: time.Now().UTC(), Deadline: f.Deadline, Estimate: f.Estimate,
		Trace: l.span.Parent(l.msg.envelope.Trace), ChosenID: true,
	}
	var err error
	switch data := f.Payload.(type) {
	case json.RawMessage:
		e.Payload, err = queue.JSONPayload(data)
	case []byte:
		e.Payload = queue.BytesPayload(data)
	}
	if err == nil {
		e.Inputs, err = named.Encode(f.Inputs)
	}
	if err == nil {
		err = validateFollowUp(e, f.Delay)
	}
	if err != nil {
		return job.Permanent(err)
	}
	if err := l.msg.runner.Place(e.ID).PutAny(ctx, e, f.Delay, l.msg.runner.Stores.Payloads); err != nil {
		return job.Unavailable(err)
	}
	l.rec.followUps.add(id)
	l.msg.log.InfoContext(ctx, "follow-up job put", "follow_up_id", id, "follow_up_kind", f.Kind, "name", f.Name)
	return nil
}

// validateFollowUp returns why a follow-up job can never be put.
func validateFollowUp(e queue.Envelope, delay time.Duration) error {
	if delay < 0 || delay > queue.MaxDelay {
		return fmt.Errorf("delay %s: it must be between 0 and %s", delay, queue.MaxDelay)
	}
	if data, _ := e.Payload.Inline(); len(data) > queue.MaxPayload {
		return fmt.Errorf("payload has %d bytes; at most %d are allowed: put the data in a blob and name it in the payload", len(data),
			queue.MaxPayload)
	}
	return e.Validate()
}
