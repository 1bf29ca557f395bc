package preempt

import (
	"context"
	"sync"
	"time"
)

// The service answers five requests a second for the whole VM, then 429. One of
// them is left to others on the VM, and to the jitter between sending a request
// and its arrival.
const (
	budgetRequests = 4
	budgetWindow   = time.Second
)

// budget lets at most budgetRequests pass in any budgetWindow. It is a sliding
// window, not a bucket: a bucket allows twice the rate for a moment. The zero
// value is ready to use.
type budget struct {
	mu   sync.Mutex
	sent [budgetRequests]time.Time // a ring; next is the oldest
	next int
}

// reserve takes the next free moment at or after now and returns it.
func (b *budget) reserve(now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := now
	if oldest := b.sent[b.next]; !oldest.IsZero() {
		if free := oldest.Add(budgetWindow); free.After(at) {
			at = free
		}
	}
	b.sent[b.next] = at
	b.next = (b.next + 1) % budgetRequests
	return at
}

// wait returns when a request may be sent, or with the cause of ctx. A moment
// reserved and then not used stays taken, which errs on the safe side.
func (b *budget) wait(ctx context.Context) error {
	now := time.Now()
	return sleep(ctx, b.reserve(now).Sub(now))
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
