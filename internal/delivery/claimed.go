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

// claimed is a message that this worker has claimed, and the job that it names, with the calls
// that every later step makes.
type claimed struct {
	env       *Runner // what deliveries share
	lease     *queue.Lease
	envelope  queue.Envelope
	inputList string // the inputs that the envelope names, as the record has them
	kind      jobKind
	log       *slog.Logger
	idLock    *active.Lock // for starting the id's handler; nil if the message is unusable
	unclaimed bool         // no worker claimed it: it moves, or its message is released unchanged

	begun   time.Time     // when it got its slot
	span    *tracing.Span // of this delivery; nil where no traces are recorded
	renewal *renewal.Renewal

	// cleanup outlives a stop up to the end of the drain. It is made from the cleanup
	// context of all jobs.
	cleanup context.Context

	// tries bounds the tries of single calls once all work is stopped. cleanup
	// carries it, and so must every other context that outlives a stop.
	tries *hedge.Tries

	// work ends when all work has to stop, and stoppable also when this job alone is
	// stopped: see cancel.
	work, stoppable context.Context
	endStoppable    context.CancelCauseFunc
}

// jobKind is the kind of a job as this worker runs it, with the limits of the job's message.
type jobKind struct {
	handler job.Handler // nil if this worker lacks the kind
	limits  job.Limits  // of kind and message, the stricter of each
	outputs job.OutputLimits
}

// kindOf returns the kind of a job.
func (r *Runner) kindOf(e queue.Envelope) jobKind {
	handler := r.Kinds[e.Kind]
	if handler == nil {
		return jobKind{}
	}
	k := jobKind{handler: handler, limits: job.LimitsOf(handler).Stricter(job.Limits{MaxRun: e.MaxRun, MaxSilence: e.MaxSilence,
		MaxFailures: e.MaxFailures})}
	k.outputs, _ = job.OutputLimitsOf(handler)
	return k
}

// begin makes the contexts of the message, and starts its renewal. The caller must call end.
func (c *claimed) begin(ctx, cleanup context.Context) {
	c.begun, c.work = time.Now(), ctx
	c.tries = hedge.NewTries(ctx)
	c.cleanup = c.tries.In(cleanup)
	c.stoppable, c.endStoppable = context.WithCancelCause(ctx)
	c.renewal = c.env.renewals.Start(c.stoppable, c.cleanup, c.lease, c.log, c.messageLost)
	c.env.logKeeper.Begin()
	if c.idLock != nil && c.env.Tracer != nil {
		c.span = c.env.Tracer.Process(c.stoppable, tracing.Message{
			Trace: c.envelope.Trace, Queue: c.lease.Queue().Name(), MessageID: c.lease.ID, JobID: c.envelope.ID, Kind: c.envelope.Kind,
			Attempt: int(c.lease.Deliveries), Since: c.begun,
		})
		c.span.Set("spotworker.worker", c.env.owner)
	}
}

// ref is this delivery as the rules of the record see it.
func (c *claimed) ref() checkpoint.Delivery {
	return checkpoint.Delivery{
		ID: c.envelope.ID, Kind: c.envelope.Kind,
		PayloadHash: c.envelope.Work(), MessageID: c.lease.ID, Again: c.envelope.Again, Group: c.envelope.Group,
		Deadline: c.envelope.Deadline, Estimate: c.envelope.Estimate,
		Steady: c.env.uptime() >= steadyFor, InputList: c.inputList,
	}
}

// isOn reports whether the job's message is on a queue, which is nil if there is none.
func (c *claimed) isOn(q *queue.Queue) bool { return q != nil && c.lease.Queue().Name() == q.Name() }

// isOnDemand reports whether the job is on the on-demand queue already.
func (c *claimed) isOnDemand() bool { return c.isOn(c.env.Stores.OnDemand) }

// sincePut is for how long the job has been there, by the service's clock except where
// the message says when the job was put.
func (c *claimed) sincePut() time.Duration {
	put := cmp.Or(c.envelope.EnqueuedAt, c.lease.InsertedAt)
	return max(c.lease.ClaimedAt.Sub(put)+time.Since(c.lease.AskedAt), 0)
}

// confirmLease makes sure that the message is still claimed by this delivery. It
// renews a message whose visibility timeout may have expired since the last answer,
// because the delivery waited for too long or its process or VM was frozen: another
// worker may run the job by now, and only the service knows.
//
// It comes between the read of a record and the write that acquires it. A record that
// was read while the message was hidden does not belong to a later delivery, and a
// record that changed after that has another ETag.
func (c *claimed) confirmLease(ctx context.Context) *outcome {
	var lost error
	err := c.retry(ctx, "renew a message whose visibility may have expired", func() error {
		if !c.lease.Expired(time.Now()) {
			return nil
		}
		visibility, _ := c.env.renewals.Visibility()
		ctx, cancel := context.WithTimeout(ctx, renewal.Timeout)
		defer cancel()
		err := c.lease.Renew(ctx, visibility)
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
func (c *claimed) messageLost(err error) {
	c.log.Warn("message lost; stopping the job", "error", err)
	c.stopJob(job.Lost, err)
}

// cancel stops this job alone; it does nothing if the job is stopped already. The job's own
// drain is added to the worker's, so that an eviction shortens it.
func (c *claimed) cancel(own *drain.Drain) {
	c.env.Drains.Add(own)
	if c.endStoppable(own); drain.Of(c.stoppable) != own {
		c.env.Drains.Remove(own) // it came too late
	}
}

// stopJob stops this job alone.
func (c *claimed) stopJob(reason job.Reason, err error) {
	c.cancel(drain.ForJob(reason, err, time.Now()))
}

// free frees the context of the job, and removes its own drain.
func (c *claimed) free() {
	c.endStoppable(nil)
	if own := drain.Of(c.stoppable); own != nil && own != drain.Of(c.work) {
		c.env.Drains.Remove(own)
	}
}

// stopRenewing stops the renewals and waits for the one under way. It comes before
// the last call for the message.
func (c *claimed) stopRenewing() {
	c.env.active.RemoveLease(c.lease)
	c.renewal.Stop()
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
func (c *claimed) retry(ctx context.Context, what string, try func() error) error {
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
		delay := c.retryDelay(failures, err)
		c.logRetry(ctx, what, err, delay)
		if retry.Sleep(ctx, delay) != nil {
			return err
		}
	}
}

// retryDelay returns the wait after that many failures of a call in a row. A call that ran out of
// time has waited already, and a drain has none to lose.
func (c *claimed) retryDelay(failures int, err error) time.Duration {
	if failures == 1 && c.work.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return 0
	}
	return retryDelays.Delay(failures)
}

// logRetry logs that a call failed and will be tried again, and whether the service
// answered. Faults that concern more than this job are logged for the whole worker.
func (c *claimed) logRetry(ctx context.Context, what string, err error, in time.Duration) {
	level := outage.Level(err, slog.LevelWarn)
	var response *azcore.ResponseError
	if errors.As(err, &response) && response.StatusCode < http.StatusInternalServerError {
		c.log.Log(ctx, level, "storage refused the call; trying again", "call", what, "code", response.ErrorCode, "error", err, "retry_in", in)
		return
	}
	c.log.Log(ctx, level, "storage is unavailable; trying again", "call", what, "error", err, "retry_in", in)
}
