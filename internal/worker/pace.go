package worker

import (
	"sync"
	"time"
)

// Visibility of a message in hand. Short, so that a dead worker's jobs return
// quickly; longer under throttling, because renewals share the queue's calls.
const (
	// defaultVisibility is the shortest where the configuration says nothing, and
	// leastVisibility the shortest that it may say: renewals come every third of
	// it, and need time to be tried again.
	defaultVisibility = 30 * time.Second
	minVisibility     = 3 * time.Second

	maxVisibility = 5 * time.Minute
)

// renewShare is the part of the visibility after which a lease is renewed.
const renewShare = 3

// nextVisibility returns the visibility for the next renewals, after one that
// was throttled or not: twice as long, or a little shorter again, down to least.
func nextVisibility(current, least time.Duration, throttled bool) time.Duration {
	if throttled {
		return min(current*2, maxVisibility)
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
