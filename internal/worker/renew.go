package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

const (
	// renewTimeout bounds one renewal; the next is tried soon after.
	renewTimeout = 8 * time.Second

	// renewRetry is the wait after a renewal that got no answer.
	renewRetry = 2 * time.Second

	// renewGrace is how long a renewal under way may finish once it is not
	// needed any more. One that is cut off leaves the receipt in doubt.
	renewGrace = time.Second
)

// renewer keeps one message invisible while its job is in hand.
type renewer struct {
	lease *queue.Lease
	pace  *pace
	log   *slog.Logger
	stop  context.CancelFunc
	ended chan struct{}
}

// renewWhile starts renewing the lease until stopped. When the service says that the
// message is no longer ours it calls lost, once, and ends. A renewal that gets
// no answer is tried again: the record decides who may write, not the message.
func renewWhile(ctx context.Context, lease *queue.Lease, p *pace, log *slog.Logger, lost func(error)) *renewer {
	ctx, cancel := context.WithCancel(ctx)
	r := &renewer{lease: lease, pace: p, log: log, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.loop(ctx, lost)
	}()
	return r
}

// wait stops renewing and waits until nothing is under way.
func (r *renewer) wait() {
	r.stop()
	<-r.ended
}

func (r *renewer) loop(ctx context.Context, lost func(error)) {
	_, after := r.pace.current()
	next := r.lease.AskedAt.Add(after)
	for sleepUntil(ctx, next) {
		asked := time.Now()
		visibility, after := r.pace.current()
		err := r.renew(ctx, visibility)
		switch {
		case errors.Is(err, queue.ErrLost):
			lost(err)
			return
		case err != nil:
			r.pace.observe(queue.Throttled(err))
			r.log.WarnContext(ctx, "message not renewed; trying again", "error", err)
			next = time.Now().Add(renewRetry)
		default:
			r.pace.observe(false)
			next = asked.Add(after)
		}
	}
}

func (r *renewer) renew(ctx context.Context, visibility time.Duration) error {
	ctx, cancelGrace := outlive(ctx, briefly(renewGrace))
	defer cancelGrace()
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	return r.lease.Renew(ctx, visibility)
}

// sleepUntil waits until t and reports true, or false when ctx ends first.
func sleepUntil(ctx context.Context, t time.Time) bool {
	return sleepFor(ctx, time.Until(t))
}

// sleepFor waits for d and reports true, or false when ctx ends first.
func sleepFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
