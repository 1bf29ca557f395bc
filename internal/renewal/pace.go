package renewal

import (
	"sync"
	"time"
)

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

// pace is the visibility timeout that all messages of a worker have.
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
