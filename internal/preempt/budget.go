package preempt

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/retry"
)

// The service answers five requests a second for the whole VM, then 429. One of
// them is left to others on the VM, and to the jitter between sending a request
// and its arrival.
const (
	budgetRequests = 4
	budgetWindow   = time.Second
)

// Budget is the rate limit for requests to the metadata service. Workers on one VM
// share one, because the service limits the VM.
type Budget interface {
	// Wait returns nil when a request of that urgency may be sent, at once, or the
	// cause of ctx.
	Wait(ctx context.Context, u Urgency) error
}

// WithBudget makes a Client send its requests when b allows it. The default is a
// budget of the client's own: four requests in any one second.
func WithBudget(b Budget) Option {
	return func(c *Client) { c.budget = b }
}

// processBudget is the budget of one process.
type processBudget struct {
	start time.Time

	mu     sync.Mutex
	window SlidingWindow
}

// NewBudget returns a budget of so many requests in any window, for the clients
// of one process.
func NewBudget(most int, window time.Duration) Budget {
	return &processBudget{start: time.Now(), window: SlidingWindow{Limit: most, Window: window}}
}

// Wait implements [Budget]. A slot that is reserved and not used stays reserved,
// which errs on the safe side.
func (b *processBudget) Wait(ctx context.Context, u Urgency) error {
	for {
		delay, ok := b.reserve(u)
		if err := retry.Sleep(ctx, delay); err != nil || ok {
			return err
		}
	}
}

func (b *processBudget) reserve(u Urgency) (delay time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.start)
	at, ok := b.window.Reserve(now, u)
	return at - now, ok
}

// queuedPolls counts the polls that wait for the budget.
type queuedPolls struct {
	n    *atomic.Int64
	left chan struct{} // holds one value: no caller waits now
}

func newQueued() queuedPolls { return queuedPolls{n: &atomic.Int64{}, left: make(chan struct{}, 1)} }

func (q queuedPolls) any() bool { return q.n.Load() > 0 }

// wait waits for the budget. The watcher sends no further poll while one waits: a queue
// of polls would only delay them.
func (c *Client) wait(ctx context.Context, u Urgency) error {
	if u != Poll {
		return c.budget.Wait(ctx, u)
	}
	c.queued.n.Add(1)
	err := c.budget.Wait(ctx, u)
	if c.queued.n.Add(-1) == 0 {
		select {
		case c.queued.left <- struct{}{}:
		default:
		}
	}
	return err
}

// Urgency is the priority of a request when the budget is exhausted.
type Urgency int

const (
	// Later is the urgency of requests that can wait: for the VM's name, or to
	// acknowledge an event. They get what polls leave.
	Later Urgency = iota

	// Poll is the urgency of reading the scheduled events. Polls are sent as soon as
	// the budget allows, before other requests.
	Poll
)

// SlidingWindow is a rate limit of Limit requests in any Window. It is a sliding
// window, not a token bucket: that allows twice the rate for a moment. It is pure:
// time is an argument, measured from any fixed moment.
type SlidingWindow struct {
	Limit  int
	Window time.Duration

	// Sent are the times of the latest requests, at most Limit, oldest first. Polls that
	// wait have times in the future.
	Sent []time.Duration
}

// Reserve returns when a request that is ready at now may be sent: now or later. It
// reserves that slot for a poll. For another request it does so only if the slot is
// free now, and reports it as ok; otherwise the caller has to ask again at that time,
// since a poll may get it.
func (s *SlidingWindow) Reserve(now time.Duration, u Urgency) (at time.Duration, ok bool) {
	at = now
	if n := len(s.Sent); n >= s.Limit {
		at = max(at, s.Sent[n-s.Limit]+s.Window)
	}
	if u != Poll && at > now {
		return at, false
	}
	s.Sent = append(s.Sent, at)
	slices.Sort(s.Sent)
	s.Sent = slices.Clone(s.Sent[max(len(s.Sent)-s.Limit, 0):])
	return at, true
}

// Release returns a slot that was not used. It ignores a slot that is no longer among the
// latest, which limits no request.
func (s *SlidingWindow) Release(at time.Duration) {
	if i := slices.Index(s.Sent, at); i >= 0 {
		s.Sent = slices.Delete(slices.Clone(s.Sent), i, i+1)
	}
}

// Fill reserves every slot at now. It is for a start where earlier requests are
// unknown.
func (s *SlidingWindow) Fill(now time.Duration) {
	s.Sent = slices.Repeat([]time.Duration{now}, s.Limit)
}
