package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/active"
	"github.com/spotworker/spotworker/internal/delivery/renewal"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/hedge"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/telemetry/tracing"
	"github.com/spotworker/spotworker/job"
)

// message is a claimed message on its way, with the calls that every phase makes.
type message struct {
	runner    *Runner
	lease     *queue.Lease
	renewal   *renewal.Renewal
	envelope  queue.Envelope
	inputList string // the inputs that the envelope names, as the record has them
	log       *slog.Logger
	idLock    *active.Lock  // for starting the id's handler; nil if the message is unusable
	begun     time.Time     // when it got its slot
	span      *tracing.Span // of this delivery; nil where no traces are recorded

	// cleanup outlives a stop up to the end of the drain. It is made from the cleanup
	// context of all jobs.
	cleanup context.Context

	// tries bounds the tries of single calls once all work is stopped. cleanup
	// carries it, and so must every other context that outlives a stop.
	tries *hedge.Tries

	// work ends when all work has to stop, and stoppable also when this job alone is
	// stopped: see cancel.
	work, stoppable context.Context
	stop            context.CancelCauseFunc // ends stoppable
}

// begin makes the contexts of the message, and starts its renewal.
func (m *message) begin(ctx, cleanup context.Context) {
	m.begun, m.work = time.Now(), ctx
	m.tries = hedge.NewTries(ctx)
	m.cleanup = m.tries.In(cleanup)
	m.stoppable, m.stop = context.WithCancelCause(ctx)
	m.renewal = m.runner.renewals.Start(m.stoppable, m.cleanup, m.lease, m.log, m.messageLost)
	m.runner.logKeeper.Begin()
}

// beginTrace begins the span of the delivery.
func (m *message) beginTrace(ctx context.Context) {
	if m.runner.Tracer == nil {
		return
	}
	m.span = m.runner.Tracer.Process(ctx, tracing.Message{
		Trace: m.envelope.Trace, Queue: m.lease.Queue().Name(), MessageID: m.lease.ID, JobID: m.envelope.ID, Kind: m.envelope.Kind,
		Attempt: int(m.lease.Deliveries), Since: m.begun,
	})
	m.span.Set("spotworker.worker", m.runner.owner)
}

// ref is this delivery as the rules of the record see it.
func (m *message) ref() checkpoint.Delivery {
	return checkpoint.Delivery{
		ID: m.envelope.ID, Kind: m.envelope.Kind,
		PayloadHash: m.envelope.Work(), MessageID: m.lease.ID, Group: m.envelope.Group,
		Deadline: m.envelope.Deadline, Estimate: m.envelope.Estimate,
		Steady: m.runner.uptime() >= steadyFor, InputList: m.inputList,
	}
}

// isOnDemand reports whether the job is on the on-demand queue already. There must be one.
func (m *message) isOnDemand() bool { return m.lease.Queue().Name() == m.runner.Stores.OnDemand.Name() }

// sincePut is for how long the job has been there, by the service's clock except where
// the message says when the job was put.
func (m *message) sincePut() time.Duration {
	put := cmp.Or(m.envelope.EnqueuedAt, m.lease.InsertedAt)
	return max(m.lease.ClaimedAt.Sub(put)+time.Since(m.lease.AskedAt), 0)
}

// confirmLease makes sure that the message is still claimed by this delivery. It
// renews a message whose visibility timeout may have expired since the last answer,
// because the delivery waited for too long or its process or VM was frozen: another
// worker may run the job by now, and only the service knows.
//
// It comes between the read of a record and the write that acquires it. A record that
// was read while the message was hidden does not belong to a later delivery, and a
// record that changed after that has another ETag.
func (m *message) confirmLease(ctx context.Context) *outcome {
	var lost error
	err := m.retry(ctx, "renew a message whose visibility may have expired", func() error {
		if !m.lease.Expired(time.Now()) {
			return nil
		}
		visibility, _ := m.runner.renewals.Visibility()
		ctx, cancel := context.WithTimeout(ctx, renewal.Timeout)
		defer cancel()
		err := m.lease.Renew(ctx, visibility)
		if errors.Is(err, queue.ErrLost) {
			lost, err = err, nil
		}
		return err
	})
	switch {
	case err != nil:
		return stopped(ctx, err)
	case lost != nil:
		return &outcome{action: drop, reason: fmt.Sprintf("the visibility expired before the job began, and another worker may have it: %v",
			lost)}
	}
	return nil
}

// messageLost stops the job because another worker has its message.
func (m *message) messageLost(err error) {
	m.log.Warn("message lost; stopping the job", "error", err)
	m.stopJob(job.Lost, err)
}

// cancel stops this job alone; it does nothing if the job is stopped already. The job's own
// drain is added to the worker's, so that an eviction shortens it.
func (m *message) cancel(own *drain.Drain) {
	m.runner.Drains.Add(own)
	if m.stop(own); drain.Of(m.stoppable) != own {
		m.runner.Drains.Remove(own) // it came too late
	}
}

// stopJob stops this job alone.
func (m *message) stopJob(reason job.Reason, err error) {
	m.cancel(drain.ForJob(reason, err, time.Now()))
}

// free frees the context of the job, and removes its own drain.
func (m *message) free() {
	m.stop(nil)
	if own := drain.Of(m.stoppable); own != nil && own != drain.Of(m.work) {
		m.runner.Drains.Remove(own)
	}
}

// stopRenewing stops the renewals and waits for the one under way. It comes before
// the last call for the message.
func (m *message) stopRenewing() {
	m.runner.active.RemoveLease(m.lease)
	m.renewal.Stop()
}

// retryDelays are the waits between the tries of a call to storage.
var retryDelays = retry.Backoff{First: 500 * time.Millisecond, Max: 15 * time.Second}

// unretryable are the errors that a further try cannot change.
var unretryable = []error{queue.ErrPayload, checkpoint.ErrDamaged, checkpoint.ErrTooLarge, checkpoint.ErrUnreadable, outputs.ErrManifest,
	paths.ErrRefused, outputs.ErrGone, errNotSent}

func isRetryable(err error) bool {
	if _, unreadable := errors.AsType[*outputs.SourceError](err); unreadable || job.IsPermanent(err) {
		return false
	}
	return !slices.ContainsFunc(unretryable, func(target error) bool { return errors.Is(err, target) })
}

// retry repeats a call until it succeeds; storage errors do not count against the job.
// It gives up when ctx ends, on errors that a further try cannot change, and after
// refusedTries that storage permanently refused.
func (m *message) retry(ctx context.Context, what string, try func() error) error {
	refused := 0
	for failures := 1; ; failures++ {
		err := try()
		if err == nil || asConflict(err) != nil || !isRetryable(err) {
			return err
		}
		if checkpoint.PermanentRefusal(err) != "" {
			refused++
		}
		if refused >= refusedTries {
			return err
		}
		if ctx.Err() != nil {
			return err
		}
		delay := m.retryDelay(failures, err)
		m.logRetry(ctx, what, err, delay)
		if retry.Sleep(ctx, delay) != nil {
			return err
		}
	}
}

// retryDelay returns the wait after that many failures of a call in a row. A call that ran out of
// time has waited already, and a drain has none to lose.
func (m *message) retryDelay(failures int, err error) time.Duration {
	if failures == 1 && m.work.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return 0
	}
	return retryDelays.Delay(failures)
}

// logRetry logs that a call failed and will be tried again, and whether the service
// answered. Faults that concern more than this job are logged for the whole worker.
func (m *message) logRetry(ctx context.Context, what string, err error, in time.Duration) {
	level := outage.Level(err, slog.LevelWarn)
	var response *azcore.ResponseError
	if errors.As(err, &response) && response.StatusCode < http.StatusInternalServerError {
		m.log.Log(ctx, level, "storage refused the call; trying again", "call", what, "code", response.ErrorCode, "error", err, "retry_in", in)
		return
	}
	m.log.Log(ctx, level, "storage is unavailable; trying again", "call", what, "error", err, "retry_in", in)
}
