package activity

import (
	"sync"
	"time"
)

const (
	// callMinutes is how far back the durations of calls reach, up to a minute less.
	callMinutes = 5

	// SlowCall is the duration from which on a small call to storage is slow. Within a region
	// it takes some 10 ms.
	SlowCall = time.Second
)

// Calls measures the durations and failures of a worker's calls to storage in the last minutes. Its
// methods may be called from many goroutines. The zero value has no calls, and neither has
// nil.
type Calls struct {
	mu   sync.Mutex
	last int64 // the present minute, since 1970
	ring [callMinutes]callMinute
}

// callMinute has the calls of a minute.
type callMinute struct {
	durations    Histogram
	slow, failed int
}

// CallReport is the sum of the calls of the last minutes.
type CallReport struct {
	Count, Slow, Failed int           // how many there were, how many were slow, and how many failed
	Typical             time.Duration // the median, at most 19 % too high
}

// Add counts a call.
func (c *Calls) Add(took time.Duration, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	m := &c.ring[c.last%callMinutes]
	m.durations.Add(took)
	if took > SlowCall {
		m.slow++
	}
	if failed {
		m.failed++
	}
}

// Report returns the sum of the calls of the last minutes.
func (c *Calls) Report() (r CallReport) {
	if c == nil {
		return r
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	var all Histogram
	for _, m := range c.ring {
		all.Merge(m.durations)
		r.Slow += m.slow
		r.Failed += m.failed
	}
	r.Count, r.Typical = all.Count(), all.Quantile(0.5)
	return r
}

// advance empties the minutes that have begun since the last call. The caller holds mu.
func (c *Calls) advance() {
	now := minuteOf(time.Now())
	if now <= c.last { // also if the clock was set back
		return
	}
	for minute := max(c.last+1, now-callMinutes+1); minute <= now; minute++ {
		c.ring[minute%callMinutes] = callMinute{}
	}
	c.last = now
}
