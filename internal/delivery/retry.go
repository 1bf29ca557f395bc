package delivery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
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
// answered.
func (d *Delivery) logRetry(ctx context.Context, what string, err error, in time.Duration) {
	var response *azcore.ResponseError
	if errors.As(err, &response) && response.StatusCode < http.StatusInternalServerError {
		d.log.WarnContext(ctx, "storage refused the call; trying again", "what", what, "code", response.ErrorCode, "error", err, "in", in)
		return
	}
	d.log.WarnContext(ctx, "storage is unavailable; trying again", "what", what, "error", err, "in", in)
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
