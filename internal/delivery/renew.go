package delivery

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
)

const (
	// renewTimeout bounds one renewal; the next is tried soon after.
	renewTimeout = 8 * time.Second

	// renewRetry is the wait after a renewal that got no answer.
	renewRetry = 2 * time.Second

	// renewGrace is how long a renewal under way may finish once it is not
	// needed any more, within the drain's time. One that is cut off leaves the
	// receipt in doubt.
	renewGrace = time.Second

	// lostShare is the part of the visibility before whose end a job stops whose
	// receipt is void, strayGrace at most, so that its record is open when the
	// message becomes visible.
	lostShare = 6
)

// renewer keeps one message hidden while its job runs.
type renewer struct {
	lease   *queue.Lease
	pace    *pace
	log     *slog.Logger
	cleanup context.Context // bounds every call
	stop    context.CancelFunc
	ended   chan struct{}
}

// startRenewing starts renewing the lease until stopped, or until last ends. When the
// message is no longer ours it calls lost, once, and ends. A renewal without an
// answer is retried: the record decides who may write, not the message.
func startRenewing(last context.Context, lease *queue.Lease, p *pace, log *slog.Logger, lost func(error)) *renewer {
	ctx, cancel := context.WithCancel(last)
	r := &renewer{lease: lease, pace: p, log: log, cleanup: last, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.loop(ctx, lost)
	}()
	return r
}

// stopAndWait stops renewing and waits until nothing is under way.
func (r *renewer) stopAndWait() {
	r.stop()
	<-r.ended
}

func (r *renewer) loop(ctx context.Context, lost func(error)) {
	_, after := r.pace.current()
	next := r.lease.AskedAt.Add(after)
	for retry.Sleep(ctx, time.Until(next)) == nil {
		asked := time.Now()
		visibility, after := r.pace.current()
		err := r.renew(ctx, visibility)
		switch {
		case errors.Is(err, queue.ErrLost):
			until := keepUntil(r.lease.DoubtfulUntil(), visibility)
			if !time.Now().Before(until) {
				lost(err)
				return
			}
			r.log.WarnContext(ctx, "receipt is void after a renewal without an answer; the job runs until shortly before its message may become visible",
				"until", until, "error", err)
			next = until
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

// keepUntil returns the time up to which a job runs whose receipt was refused.
// doubtful is the end of the hiding that a renewal without an answer may have
// bought, zero if there was none: the receipt is then another worker's.
func keepUntil(doubtful time.Time, visibility time.Duration) time.Time {
	if doubtful.IsZero() {
		return doubtful
	}
	return doubtful.Add(-min(visibility/lostShare, drain.OneJobGrace))
}

func (r *renewer) renew(ctx context.Context, visibility time.Duration) error {
	ctx, cancelGrace := drain.Outlive(ctx, drain.UntilAfter(renewGrace))
	defer cancelGrace()
	defer context.AfterFunc(r.cleanup, cancelGrace)()
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	return r.lease.Renew(ctx, visibility)
}

// Visibility of a message in hand. Short, so that a dead worker's jobs return
// quickly; longer under throttling, because renewals share the queue's calls.
const (
	// DefaultVisibility is the shortest where the configuration says nothing, and
	// leastVisibility the shortest that it may say: renewals come every third of
	// it, and need time to be tried again.
	DefaultVisibility = 30 * time.Second
	MinVisibility     = 3 * time.Second

	MaxVisibility = 5 * time.Minute
)

// renewShare is the part of the visibility after which a lease is renewed.
const renewShare = 3

// nextVisibility returns the visibility for the next renewals, after one that
// was throttled or not: twice as long, or a little shorter again, down to least.
func nextVisibility(current, least time.Duration, throttled bool) time.Duration {
	if throttled {
		return min(current*2, MaxVisibility)
	}
	return max(current-current/8, least)
}

// pace is the visibility that all deliveries of a worker use.
type pace struct {
	least time.Duration

	mu         sync.Mutex
	visibility time.Duration
}

func newPace(least time.Duration) *pace { return &pace{least: least, visibility: least} }

// current returns the visibility to ask for, and how long after asking to renew.
func (p *pace) current() (visibility, renewAfter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.visibility, p.visibility / renewShare
}

// observe takes note of a renewal.
func (p *pace) observe(throttled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.visibility = nextVisibility(p.visibility, p.least, throttled)
}
