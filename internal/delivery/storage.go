package delivery

import (
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/outage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

const (
	// renewTimeout bounds one renewal; the next is tried soon after.
	renewTimeout = 8 * time.Second

	// renewRetry is the wait after a renewal that failed.
	renewRetry = 2 * time.Second

	// renewGrace is how long a renewal under way may finish once it is not needed
	// any more, within the drain's time. One that is cut off leaves it in doubt
	// whether the pop receipt is valid.
	renewGrace = time.Second

	// lostShare is the share of the visibility timeout, drain.OneJobGrace at most,
	// that a job whose pop receipt is void stops before its message may become
	// visible, so that its record is open by then.
	lostShare = 6
)

const (
	// parallelRenewals is how many renewals run at once, as long as they are answered
	// soon: see drain.Gate.
	parallelRenewals = 16

	// spreadFrom is the number of messages from which on the first renewals are spread
	// out: those of messages that were claimed together would otherwise come together,
	// every time.
	spreadFrom = 64

	// spreadShare is the share of the time until a renewal by which it comes earlier at
	// most.
	spreadShare = 0.8
)

// renewals renews the messages of all active deliveries. One timer serves all of them:
// a message takes a goroutine only while a call for it is in flight.
type renewals struct {
	pace *pace
	gate *drain.Gate

	mu     sync.Mutex
	due    renewalHeap // those that wait; the next one first
	timer  *time.Timer // for the next one
	active int         // messages, those with a call in flight included
	added  int         // messages ever
}

// renewal keeps one message hidden while its job runs.
type renewal struct {
	set     *renewals
	lease   *queue.Lease
	log     *slog.Logger
	cleanup context.Context // bounds every call
	lost    func(error)

	// The rest is guarded by set.mu.
	due     time.Time
	index   int                // in the heap; -1 outside
	stopped bool               // no further call begins
	stop    context.CancelFunc // ends the call in flight; nil without one
	ended   chan struct{}      // closed when the call in flight has ended; nil without a waiter
}

func newRenewals(p *pace) *renewals {
	return &renewals{pace: p, gate: drain.NewGate(func() int { return parallelRenewals })}
}

// start renews the lease until the renewal is stopped or cleanup ends. When another
// worker has the message it calls lost, once, and ends. A renewal that fails is
// retried: the record decides who may write, not the message.
func (s *renewals) start(cleanup context.Context, lease *queue.Lease, log *slog.Logger, lost func(error)) *renewal {
	r := &renewal{set: s, lease: lease, log: log, cleanup: cleanup, lost: lost, index: -1}
	_, after := s.pace.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active++
	s.added++
	r.due = firstRenewal(lease.AskedAt, time.Now(), after, s.active, s.added)
	heap.Push(&s.due, r)
	s.arm()
	return r
}

// firstRenewal returns when the n-th message is renewed first that was claimed at asked,
// while so many are active. Those of many messages are spread out, as long as that makes
// none overdue: by the fractions of multiples of the golden ratio, which fill a period
// evenly however many there are.
func firstRenewal(asked, now time.Time, after time.Duration, active, n int) time.Time {
	due := asked.Add(after)
	if active < spreadFrom {
		return due
	}
	const golden = 0.6180339887498949
	part := golden * float64(n)
	earlier := due.Add(-time.Duration(spreadShare * (part - float64(int(part))) * float64(after)))
	if earlier.Before(now) {
		return due
	}
	return earlier
}

// arm sets the timer for the next renewal. The caller holds mu.
func (s *renewals) arm() {
	switch {
	case len(s.due) == 0 && s.timer != nil:
		s.timer.Stop()
	case len(s.due) == 0:
	case s.timer == nil:
		s.timer = time.AfterFunc(time.Until(s.due[0].due), s.fire)
	default:
		s.timer.Reset(time.Until(s.due[0].due))
	}
}

// fire begins the renewals that are due.
func (s *renewals) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for now := time.Now(); len(s.due) > 0 && !now.Before(s.due[0].due); {
		r := heap.Pop(&s.due).(*renewal)
		if r.cleanup.Err() != nil {
			continue // no call may begin
		}
		ctx, cancel := context.WithCancel(r.cleanup)
		r.stop = cancel
		go r.run(ctx)
	}
	s.arm()
}

// run makes one renewal, and waits for the next.
func (r *renewal) run(ctx context.Context) {
	next, err := r.renew(ctx)
	if err != nil {
		r.lost(err)
	}
	s := r.set
	s.mu.Lock()
	defer s.mu.Unlock()
	r.stop()
	r.stop = nil
	if r.ended != nil {
		close(r.ended)
	}
	if r.stopped || err != nil || r.cleanup.Err() != nil {
		return
	}
	r.due = next
	heap.Push(&s.due, r)
	s.arm()
}

// renew makes one call, and returns when the next is due. The error says that another
// worker has the message.
func (r *renewal) renew(ctx context.Context) (next time.Time, lost error) {
	pace := r.set.pace
	leave, err := r.set.gate.Enter(ctx, 0)
	if err != nil {
		return time.Time{}, nil // it is not needed any more
	}
	defer leave()
	if ctx.Err() != nil {
		return time.Time{}, nil
	}
	asked := time.Now()
	visibility, after := pace.current()
	switch err := r.call(ctx, visibility); {
	case errors.Is(err, queue.ErrLost):
		until := keepUntil(r.lease.DoubtfulUntil(), visibility)
		if !time.Now().Before(until) {
			return time.Time{}, err
		}
		r.log.WarnContext(ctx, "receipt is void after a renewal without an answer; the job runs until shortly before its message may become visible",
			"until", until, "error", err)
		return until, nil
	case err != nil && ctx.Err() != nil:
		return time.Time{}, nil // cut off: it is not needed any more
	case err != nil:
		pace.observe(queue.Throttled(err))
		r.log.Log(ctx, outage.Level(err, slog.LevelWarn), "message not renewed; trying again", "error", err, "in", renewRetry)
		return time.Now().Add(renewRetry), nil
	default:
		pace.observe(false)
		return asked.Add(after), nil
	}
}

// call makes one call, which continues for renewGrace once it is not needed any more.
func (r *renewal) call(ctx context.Context, visibility time.Duration) error {
	ctx, cancelGrace := drain.Outlive(ctx, drain.UntilAfter(renewGrace))
	defer cancelGrace()
	defer context.AfterFunc(r.cleanup, cancelGrace)()
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	return r.lease.Renew(ctx, visibility)
}

// stopAndWait stops renewing and waits until nothing is in flight. It may be called
// more than once.
func (r *renewal) stopAndWait() {
	s := r.set
	s.mu.Lock()
	if !r.stopped {
		r.stopped = true
		s.active--
	}
	if r.index >= 0 {
		heap.Remove(&s.due, r.index)
		s.arm()
	}
	if r.stop == nil {
		s.mu.Unlock()
		return
	}
	if r.ended == nil {
		r.ended = make(chan struct{})
	}
	ended := r.ended
	r.stop()
	s.mu.Unlock()
	<-ended
}

// renewalHeap orders renewals by the time at which they are due, for package heap.
type renewalHeap []*renewal

func (h renewalHeap) Len() int           { return len(h) }
func (h renewalHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h renewalHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *renewalHeap) Push(x any) {
	r := x.(*renewal)
	r.index = len(*h)
	*h = append(*h, r)
}

func (h *renewalHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	r.index = -1
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return r
}

// keepUntil returns up to when a job may run whose pop receipt was refused. doubtful is
// when the visibility timeout expires that a renewal without an answer may have set. It
// is zero if there was none: then another worker has the message.
func keepUntil(doubtful time.Time, visibility time.Duration) time.Time {
	if doubtful.IsZero() {
		return doubtful
	}
	return doubtful.Add(-min(visibility/lostShare, drain.OneJobGrace))
}

// The visibility timeout is short, so that the jobs of a dead worker are resumed soon,
// and longer under throttling, because renewals share the queue's rate limit.
const (
	// DefaultVisibility is the shortest timeout by default. MinVisibility is the
	// shortest that can be configured: renewals come every third of it, and need time
	// for retries. MaxVisibility is the longest.
	DefaultVisibility = 30 * time.Second
	MinVisibility     = 3 * time.Second

	MaxVisibility = 5 * time.Minute
)

// renewShare is the share of the timeout after which a lease is renewed.
const renewShare = 3

// nextVisibility returns the timeout after a call that was throttled or not: twice as
// long, or a little shorter again, down to least.
func nextVisibility(current, least time.Duration, throttled bool) time.Duration {
	if throttled {
		return min(current*2, MaxVisibility)
	}
	return max(current-current/8, least)
}

// pace is the visibility timeout that all deliveries of a worker use.
type pace struct {
	least time.Duration

	mu         sync.Mutex
	visibility time.Duration
}

func newPace(least time.Duration) *pace { return &pace{least: least, visibility: least} }

// current returns the timeout to ask for, and how long after asking to renew.
func (p *pace) current() (visibility, renewAfter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.visibility, p.visibility / renewShare
}

// observe learns from a call.
func (p *pace) observe(throttled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.visibility = nextVisibility(p.visibility, p.least, throttled)
}

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
		d.log.Log(ctx, level, "storage refused the call; trying again", "call", what, "code", response.ErrorCode, "error", err, "in", in)
		return
	}
	d.log.Log(ctx, level, "storage is unavailable; trying again", "call", what, "error", err, "in", in)
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
		ID: id, Kind: f.Kind, EnqueuedAt: time.Now().UTC(), Deadline: f.Deadline, Trace: d.envelope.Trace, ChosenID: true,
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
