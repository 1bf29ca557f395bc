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

// Calls measures the durations of a worker's calls to storage in the last minutes. Its
// methods may be called from many goroutines. The zero value has no calls, and neither has
// nil.
type Calls struct {
	mu   sync.Mutex
	last int64 // the present minute, since 1970
	ring [callMinutes]callMinute
}

// callMinute has the calls of a minute.
type callMinute struct {
	durations Histogram
	slow      int
}

// Add counts a call.
func (c *Calls) Add(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	m := &c.ring[c.last%callMinutes]
	m.durations.Add(took)
	if took > SlowCall {
		m.slow++
	}
}

// Report returns how many calls there were, how many of them were slow, and their median,
// which is at most 19 % too high.
func (c *Calls) Report() (count, slow int, typical time.Duration) {
	if c == nil {
		return 0, 0, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	var all Histogram
	for _, m := range c.ring {
		all.Merge(m.durations)
		slow += m.slow
	}
	return all.Count(), slow, all.Quantile(0.5)
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
