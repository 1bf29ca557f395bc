package preempt

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The service answers five requests a second for the whole VM, then 429. One of
// them is left to others on the VM, and to the jitter between sending a request
// and its arrival.
const (
	budgetRequests = 4
	budgetWindow   = time.Second
)

// Budget says when the next request may be sent. Workers on one VM share one,
// as the service's limit is the VM's.
type Budget interface {
	// Wait returns when a request of that urgency may be sent, which is to
	// happen at once then, or with the cause of ctx.
	Wait(ctx context.Context, u Urgency) error
}

// WithBudget makes a Client send its requests when b allows it. The default is a
// budget of the client's own: four requests in any one second.
func WithBudget(b Budget) Option {
	return func(c *Client) { c.budget = b }
}

// ownBudget is the budget of one client.
type ownBudget struct {
	start time.Time

	mu    sync.Mutex
	slots Slots
}

// NewBudget returns a budget of so many requests in any window, for the clients
// of one process.
func NewBudget(most int, window time.Duration) Budget {
	return &ownBudget{start: time.Now(), slots: Slots{Most: most, Window: window}}
}

// Wait implements [Budget]. A slot taken and then not used stays taken, which
// errs on the safe side.
func (b *ownBudget) Wait(ctx context.Context, u Urgency) error {
	for {
		delay, ok := b.take(u)
		if err := sleep(ctx, delay); err != nil || ok {
			return err
		}
	}
}

func (b *ownBudget) take(u Urgency) (delay time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.start)
	at, ok := b.slots.Take(now, u)
	return at - now, ok
}

// queued counts the polls that wait for the budget.
type queued struct {
	n    *atomic.Int64
	left chan struct{} // holds one: none waits any more
}

func newQueued() queued { return queued{n: &atomic.Int64{}, left: make(chan struct{}, 1)} }

func (q queued) any() bool { return q.n.Load() > 0 }

// wait waits for the budget. The watcher sends no further poll while one waits:
// they would only stand in line, and each be later than the last.
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

// sleep waits for d, or returns the cause of ctx when that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Urgency orders requests where the budget is short.
type Urgency int

const (
	// Later is for what can wait: finding out the VM's name, acknowledging. It
	// takes only what polls leave.
	Later Urgency = iota

	// Poll is for reading the scheduled events. It is sent as soon as the budget
	// allows, before whatever else waits.
	Poll
)

// Slots says when a request may be sent, so that at most Most are sent in any
// Window. It is a sliding window, not a bucket: a bucket allows twice the rate
// for a moment. It is pure: time comes in as an argument, measured from any
// fixed moment.
type Slots struct {
	Most   int
	Window time.Duration

	// Sent are the times of the latest requests, Most of them at most, oldest
	// first. Polls that wait have theirs in the future.
	Sent []time.Duration
}

// Take returns when a request that is ready at now may be sent, which is now or
// later. A poll has that slot then. Anything else has it only if it is free now,
// which ok says; otherwise it asks again at that time, since a poll may take it.
func (s *Slots) Take(now time.Duration, u Urgency) (at time.Duration, ok bool) {
	at = now
	if n := len(s.Sent); n >= s.Most {
		at = max(at, s.Sent[n-s.Most]+s.Window)
	}
	if u != Poll && at > now {
		return at, false
	}
	s.Sent = append(s.Sent, at)
	slices.Sort(s.Sent)
	s.Sent = slices.Clone(s.Sent[max(len(s.Sent)-s.Most, 0):])
	return at, true
}

// Return gives back a slot that was not used. One that is not among the latest has
// no bearing on what may be sent any more.
func (s *Slots) Return(at time.Duration) {
	if i := slices.Index(s.Sent, at); i >= 0 {
		s.Sent = slices.Delete(slices.Clone(s.Sent), i, i+1)
	}
}

// Fill takes every slot there is at now, for when it is not known what was sent
// before.
func (s *Slots) Fill(now time.Duration) {
	s.Sent = slices.Repeat([]time.Duration{now}, s.Most)
}
