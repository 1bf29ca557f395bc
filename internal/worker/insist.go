package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
)

// Bounds of the wait between two tries of insist.
const (
	firstInsist   = 500 * time.Millisecond
	longestInsist = 15 * time.Second
)

// unmendable are the errors that a repeat cannot change.
var unmendable = []error{queue.ErrPayload, checkpoint.ErrDamaged, checkpoint.ErrTooLarge, checkpoint.ErrUnreadable}

func isUnmendable(err error) bool {
	return slices.ContainsFunc(unmendable, func(target error) bool { return errors.Is(err, target) })
}

// insist repeats what storage trouble kept from working: that is no failure of
// the job. It gives up when ctx ends, and on answers that a repeat cannot change.
func (d *delivery) insist(ctx context.Context, what string, try func() error) error {
	for delay := firstInsist; ; delay = min(delay*2, longestInsist) {
		err := try()
		if err == nil || asConflict(err) != nil || isUnmendable(err) {
			return err
		}
		if ctx.Err() != nil {
			return err
		}
		d.log.WarnContext(ctx, "storage gave no answer; trying again", "what", what, "error", err, "in", delay)
		if !sleepFor(ctx, delay) {
			return err
		}
	}
}
