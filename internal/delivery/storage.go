package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/outage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

// retryDelays are the waits between the tries of a call to storage.
var retryDelays = retry.Backoff{First: 500 * time.Millisecond, Max: 15 * time.Second}

// unretryable are the errors that a further try cannot change.
var unretryable = []error{queue.ErrPayload, checkpoint.ErrDamaged, checkpoint.ErrTooLarge, checkpoint.ErrUnreadable}

func isRetryable(err error) bool {
	return !slices.ContainsFunc(unretryable, func(target error) bool { return errors.Is(err, target) })
}

const (
	// refusedTries is how often a call is tried that storage permanently refuses
	// ([checkpoint.PermanentRefusal]), where giving up loses nothing.
	refusedTries = 3

	// resultPatience is how long a commit is tried then, since giving up loses what
	// was done since the last save. It is longer than a blob lease of a minute, the
	// longest that ends without being released.
	resultPatience = 75 * time.Second
)

// retry repeats a call until it succeeds; storage errors do not count against the job.
// It gives up when ctx ends, on errors that a further try cannot change, and after
// refusedTries that storage permanently refused.
func (d *Delivery) retry(ctx context.Context, what string, try func() error) error {
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
		delay := retryDelays.Delay(failures)
		d.logRetry(ctx, what, err, delay)
		if retry.Sleep(ctx, delay) != nil {
			return err
		}
	}
}

// logRetry logs that a call failed and will be tried again, and whether the service
// answered. Faults that concern more than this job are logged for the whole worker.
func (d *Delivery) logRetry(ctx context.Context, what string, err error, in time.Duration) {
	level := outage.Level(err, slog.LevelWarn)
	var response *azcore.ResponseError
	if errors.As(err, &response) && response.StatusCode < http.StatusInternalServerError {
		d.log.Log(ctx, level, "storage refused the call; trying again", "call", what, "code", response.ErrorCode, "error", err, "retry_in", in)
		return
	}
	d.log.Log(ctx, level, "storage is unavailable; trying again", "call", what, "error", err, "retry_in", in)
}

// refusedOutcome is the outcome of a delivery of which storage permanently refuses a
// call: it frees the slot, and its message becomes visible again later and later.
func refusedOutcome(err error) outcome {
	code := checkpoint.PermanentRefusal(err)
	return outcome{action: storageRefused, refusal: code, reason: fmt.Sprintf("storage refused (%s): %v", code, err)}
}

// hasTriedEnough reports whether to give up an outcome that storage permanently refused,
// after so many tries in that time: at once in a drain, which has no time to lose, and
// later where giving up loses a result.
func hasTriedEnough(draining, losesResult bool, tries int, tried time.Duration) bool {
	switch {
	case draining:
		return true
	case losesResult:
		return tried >= resultPatience
	default:
		return tries >= refusedTries
	}
}

// putFollowUp puts a follow-up job of this one on the queue of jobs. Its id may have
// been put before, by an earlier run of the handler.
func (d *Delivery) putFollowUp(ctx context.Context, id string, f job.FollowUp) error {
	e := queue.Envelope{
		ID: id, Kind: f.Kind, EnqueuedAt: time.Now().UTC(), Deadline: f.Deadline, Estimate: f.Estimate, Trace: d.envelope.Trace, ChosenID: true,
	}
	var err error
	switch data := f.Payload.(type) {
	case json.RawMessage:
		e.Payload, err = queue.JSONPayload(data)
	case []byte:
		e.Payload = queue.BytesPayload(data)
	}
	if err == nil {
		err = validateFollowUp(e, f.Delay)
	}
	if err != nil {
		return job.Permanent(err)
	}
	if err := d.runner.queue.PutAny(ctx, e, f.Delay, d.runner.payloads); err != nil {
		return job.Unavailable(err)
	}
	d.log.InfoContext(ctx, "follow-up job put", "follow_up_id", id, "follow_up_kind", f.Kind, "name", f.Name)
	return nil
}

// validateFollowUp returns why a follow-up job can never be put.
func validateFollowUp(e queue.Envelope, delay time.Duration) error {
	if delay < 0 || delay > queue.MaxDelay {
		return fmt.Errorf("delay %s: it must be between 0 and %s", delay, queue.MaxDelay)
	}
	if data, _ := e.Payload.Inline(); len(data) > queue.MaxPayload {
		return fmt.Errorf("payload has %d bytes; at most %d are allowed: put the data in a blob and name it in the payload", len(data), queue.MaxPayload)
	}
	return e.Validate()
}
