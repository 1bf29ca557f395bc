package delivery

import (
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/queue"
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
	case err != nil:
		pace.observe(queue.Throttled(err))
		r.log.WarnContext(ctx, "message not renewed; trying again", "error", err)
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
