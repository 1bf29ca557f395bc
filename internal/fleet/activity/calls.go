package activity

import (
	"sync"
	"time"
)

const (
	// callSpans and callSpan are how far back calls are counted: the last minute, up to a
	// span less, so that a heartbeat shows a fault while it lasts.
	callSpans = 4
	callSpan  = 15 * time.Second

	// SlowCall is the duration from which on a small call to storage is slow. Within a region
	// it takes some 10 ms.
	SlowCall = time.Second
)

// CallResult is how a call to storage ended.
type CallResult int

// The results.
const (
	CallServed    CallResult = iota
	CallFailed               // no answer, or an error of the service
	CallDenied               // for lack of a right
	CallThrottled            // because calls come too fast
	CallMissing              // because there is no such queue or container
)

// Calls counts a worker's calls to storage in the last minute. Its methods may be called from
// many goroutines. The zero value has no calls, and neither has nil.
type Calls struct {
	mu   sync.Mutex
	last int64 // the present span, since 1970
	ring [callSpans]CallReport
}

// CallReport counts the calls of the last minute.
type CallReport struct {
	Count, Slow int // how many there were, and how many were slow

	// Failed is how many were not served. Denied, Throttled and Missing are parts of it.
	Failed, Denied, Throttled, Missing int
}

// Add counts a call.
func (c *Calls) Add(took time.Duration, result CallResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	r := &c.ring[c.last%callSpans]
	r.Count++
	if took > SlowCall {
		r.Slow++
	}
	if result != CallServed {
		r.Failed++
	}
	switch result {
	case CallDenied:
		r.Denied++
	case CallThrottled:
		r.Throttled++
	case CallMissing:
		r.Missing++
	case CallServed, CallFailed:
	}
}

// Report returns the sum of the calls of the last minute.
func (c *Calls) Report() (all CallReport) {
	if c == nil {
		return all
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	for _, r := range c.ring {
		all.Count += r.Count
		all.Slow += r.Slow
		all.Failed += r.Failed
		all.Denied += r.Denied
		all.Throttled += r.Throttled
		all.Missing += r.Missing
	}
	return all
}

// advance empties the spans that have begun since the last call. The caller holds mu.
func (c *Calls) advance() {
	now := time.Now().UnixNano() / int64(callSpan)
	if now <= c.last { // also if the clock was set back
		return
	}
	for span := max(c.last+1, now-callSpans+1); span <= now; span++ {
		c.ring[span%callSpans] = CallReport{}
	}
	c.last = now
}
