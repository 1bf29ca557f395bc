package delivery

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// TestConfirmOwnership: a job that was stopped because it is another's puts no follow-up jobs; a
// job that was stopped for other reasons may.
func TestConfirmOwnership(t *testing.T) {
	for reason, owns := range map[job.Reason]bool{
		"": true, job.Cancelled: false, job.Fenced: false, job.Lost: false, job.Evicted: true, job.Shutdown: true, job.Drained: true,
		job.Silent: true, job.Overrun: true,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if reason != "" {
			cancel(drain.ForJob(reason, errors.New("told"), time.Now()))
		}
		o := owned{claimed: &claimed{env: &Runner{}, stoppable: ctx}}
		o.cancelsChecked.Store(&time.Time{})
		if err := o.confirmOwnership(t.Context()); (err == nil) != owns {
			t.Errorf("stopped because of %q: confirmOwnership = %v, want success: %t", reason, err, owns)
		}
		cancel(nil)
	}
}

// TestTriedEnough: a call that storage permanently refuses is given up at once in a drain, after a few
// tries if nothing is lost, and for a result only after the time of a lease.
func TestTriedEnough(t *testing.T) {
	for _, row := range []struct {
		draining, losesResult bool
		tries                 int
		tried                 time.Duration
		want                  bool
	}{
		{true, true, 1, 0, true}, {true, false, 1, 0, true},
		{false, true, 100, resultPatience - 1, false}, {false, true, 1, resultPatience, true},
		{false, false, refusedTries - 1, time.Hour, false}, {false, false, refusedTries, 0, true},
	} {
		if got := hasTriedEnough(row.draining, row.losesResult, row.tries, row.tried); got != row.want {
			t.Errorf("%+v: hasTriedEnough = %t", row, got)
		}
	}
}

// TestMostOf: the handler gets four fifths of the time for its outputs.
func TestMostOf(t *testing.T) {
	limited, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	most, end := mostOf(limited)
	defer end()
	if at, ok := most.Deadline(); !ok || time.Until(at) > 8*time.Minute || time.Until(at) < 7*time.Minute {
		t.Errorf("deadline = %s from now, want 8 min", time.Until(at))
	}
	free, stop := mostOf(t.Context())
	if _, ok := free.Deadline(); ok || free.Err() != nil {
		t.Errorf("a context without a deadline got one, or has ended: %v", free.Err())
	}
	stop()
	if free.Err() == nil {
		t.Error("the context cannot be ended")
	}
}

// TestRetryable: errors that a further try cannot change are not retried, however they are wrapped.
func TestRetryable(t *testing.T) {
	for err, want := range map[error]bool{
		errors.New("no"): true, job.Unavailable(errors.New("no")): true, job.Permanent(errors.New("no")): false, queue.ErrPayload: false,
		checkpoint.ErrDamaged: false, checkpoint.ErrTooLarge: false, outputs.ErrManifest: false, outputs.ErrGone: false, errNotSent: false,
		checkpoint.ErrReading: true, &outputs.SourceError{}: false,
	} {
		if got := isRetryable(fmt.Errorf("tried: %w", err)); got != want {
			t.Errorf("isRetryable(%v) = %t, want %t", err, got, want)
		}
	}
}
