package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/job"
)

// errNotSent means that the outputs which a state relies on could not be sent, or not in
// time. Calls were repeated where possible: the state cannot be recorded.
var errNotSent = errors.New("not all outputs of the job could be sent")

// outputsChanged reports whether the job has sent or removed outputs that its record does
// not have yet, and would get without a new state.
func (l *loaded) outputsChanged() bool {
	return l.outputs != nil && (l.outputs.Unrecorded() ||
		l.claim.HasNewOutputs(checkpoint.Outputs(l.outputs.Ref())))
}

// prepareOutputs makes the outputs ready that the next state relies on: the handler sends
// the outputs that it has not sent, and the next write of the record names all of them.
// Of the time that ctx has left, the handler gets the most, and the list the rest: the
// outputs that were sent are recorded even if others could not be sent.
func (l *loaded) prepareOutputs(ctx context.Context) error {
	if l == nil || l.outputs == nil {
		return nil
	}
	var err error
	if l.job.HasBeforeSave() {
		sending, cancel := mostOf(ctx)
		err = l.job.PrepareSave(sending)
		if err != nil {
			err = fmt.Errorf("%w: %w", errNotSent, err)
		}
		cancel()
	}
	return errors.Join(err, l.recordOutputs(ctx))
}

// mostOf returns a context that has four fifths of the time of ctx.
func mostOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)*4/5)
}

// recordOutputs stores the list of the job's outputs if it has changed. Every later write
// of the record names it.
func (l *loaded) recordOutputs(ctx context.Context) error {
	if l.outputs == nil || !l.outputs.Unrecorded() {
		return nil
	}
	_, err := l.outputs.Record(ctx)
	return err
}

// outputCaller is a delivery as its outbox sees it.
type outputCaller struct{ job *claimed }

// Sent counts and logs a file that the job has stored.
func (c outputCaller) Sent(ctx context.Context, f outputs.File, took time.Duration) {
	c.job.env.Observe(observe.OutputSent{Bytes: f.Size})
	c.job.log.DebugContext(ctx, "output sent", "name", f.Path, "bytes", f.Size, "took", took)
}

// Retry repeats a call to storage.
func (c outputCaller) Retry(ctx context.Context, what string, try func() error) error {
	return c.job.retry(ctx, what, try)
}

// IsLasting reports whether a further try cannot change an error.
func (c outputCaller) IsLasting(err error) bool { return !isRetryable(err) }

const (
	// logGrace is how long the log of a job may be sent after a stop, once nothing else
	// is left to send.
	logGrace = time.Second

	// logTimeout bounds one write of a log.
	logTimeout = 10 * time.Second
)

// writeLastLog writes the part of the log that the record has no room for, at the end of the
// delivery, when the record is written and the message gone. In a drain it waits until all other jobs are released too.
func (l *loaded) writeLastLog(ctx context.Context) {
	if !l.output.Pending() || !l.claim.Exists() {
		return
	}
	if stop := drain.Of(ctx); stop != nil && !stop.OneJob {
		l.env.logKeeper.WaitForOthers(l.cleanup)
	}
	outlives, cancel := drain.Outlive(l.tries.In(ctx), drain.UntilAfter(logGrace))
	defer cancel()
	defer context.AfterFunc(l.cleanup, cancel)()
	l.reportLog(ctx, l.output.WriteLast(outlives, logTimeout))
}

// reportLog logs that a log could not be stored. Its end is in the record all the same.
func (l *loaded) reportLog(ctx context.Context, err error) {
	if err == nil {
		return
	}
	level := slog.LevelDebug
	due, leftOut := l.env.lines.logFaults.Allow(l.envelope.Kind, time.Now())
	if due && ctx.Err() == nil {
		level = outage.Level(err, slog.LevelWarn)
	}
	l.log.Log(ctx, level, "lines of the job's own log not stored; its record has the last of them", "error", err, "suppressed", leftOut)
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
func (l *loaded) putFollowUp(ctx context.Context, id string, f job.FollowUp) error {
	if err := l.confirmOwnership(ctx); err != nil {
		return job.Unavailable(err)
	}
	e := queue.Envelope{
		ID: id, Kind: f.Kind, EnqueuedAt: time.Now().UTC(), Deadline: f.Deadline, Estimate: f.Estimate,
		Trace: l.trace.Parent(l.envelope.Trace), ChosenID: true,
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
	if err := l.env.Place(e.ID).PutAny(ctx, e, f.Delay, l.env.Stores.Payloads); err != nil {
		return job.Unavailable(err)
	}
	l.followUps.add(id)
	l.log.InfoContext(ctx, "follow-up job put", "follow_up_id", id, "follow_up_kind", f.Kind, "name", f.Name)
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
