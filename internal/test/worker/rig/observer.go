package rig

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/worker"
)

// Counter is an Observer that counts its calls, by method and argument.
type Counter struct {
	mu     sync.Mutex
	Counts map[string]int
	Bytes  int64
	Times  map[string]time.Duration
	Drain  time.Duration
	polled time.Time
	blind  time.Time
}

func (c *Counter) count(what string, f ...func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Counts == nil {
		c.Counts = map[string]int{}
	}
	c.Counts[what]++
	for _, f := range f {
		f()
	}
}

// Of returns the counts of those calls, 0 included.
func (c *Counter) Of(what ...string) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := map[string]int{}
	for _, w := range what {
		m[w] = c.Counts[w]
	}
	return m
}

// Entered implements worker.Observer.
func (c *Counter) Entered(state string, ending bool) {
	c.count(fmt.Sprintf("entered %s %t", state, ending))
}

// Delivered implements worker.Observer.
func (c *Counter) Delivered() { c.count("delivered") }

// Ended implements worker.Observer.
func (c *Counter) Ended(outcome string) { c.count("ended " + outcome) }

// Started implements worker.Observer.
func (c *Counter) Started(how string) { c.count("started " + how) }

// Returned implements worker.Observer.
func (c *Counter) Returned() { c.count("returned") }

// Waited implements worker.Observer.
func (c *Counter) Waited(after string, _ time.Duration) { c.count("waited after " + after) }

// Failed implements worker.Observer.
func (c *Counter) Failed(kind, class string) { c.count("failed " + kind + ", " + class) }

// Committed implements worker.Observer.
func (c *Counter) Committed(kind string, _, _ time.Duration, interruptions, exits int) {
	c.count(fmt.Sprintf("committed %s, %d interruptions, %d exits", kind, interruptions, exits))
}

// Spent implements worker.Observer.
func (c *Counter) Spent(kind, effort string, took time.Duration) {
	c.count("spent", func() {
		if c.Times == nil {
			c.Times = map[string]time.Duration{}
		}
		c.Times[kind+", "+effort] += took
	})
}

// QueueRead implements worker.Observer.
func (c *Counter) QueueRead(queue string, messages int, oldest time.Duration) {
	c.count(fmt.Sprintf("queue %s read: %d messages, the oldest %s", queue, messages, oldest))
}

// Watch implements worker.Observer.
func (c *Counter) Watch(func() (report, checkpoint time.Duration, silent, lacking int)) {}

// Broke implements worker.Observer.
func (c *Counter) Broke(kind string) { c.count("broke " + kind) }

// Recovered implements worker.Observer.
func (c *Counter) Recovered(kind string) { c.count("recovered " + kind) }

// Refused implements worker.Observer.
func (c *Counter) Refused(code string) { c.count("refused " + code) }

// OutputSent implements worker.Observer.
func (c *Counter) OutputSent(int64) { c.count("output sent") }

// LeftOut implements worker.Observer.
func (c *Counter) LeftOut() { c.count("left out") }

// Moved implements worker.Observer.
func (c *Counter) Moved(reason string) { c.count("moved " + reason) }

// Circles implements worker.Observer.
func (c *Counter) Circles(cause string) { c.count("circles " + cause) }

// Announced implements worker.Observer.
func (c *Counter) Announced(kind, action string) { c.count("announced " + kind + ", " + action) }

// Unrecognised implements worker.Observer.
func (c *Counter) Unrecognised() { c.count("unrecognised") }

// Acknowledged implements worker.Observer.
func (c *Counter) Acknowledged(result string) { c.count("acknowledged " + result) }

// Saved implements worker.Observer.
func (c *Counter) Saved(result string, bytes int64, _ time.Duration) {
	c.count("saved "+result, func() { c.Bytes += bytes })
}

// Drained implements worker.Observer.
func (c *Counter) Drained(reason string, took time.Duration) {
	c.count("drained "+reason, func() { c.Drain = took })
}

// Polled implements worker.Observer.
func (c *Counter) Polled(at time.Time, result string) {
	c.count("polled "+result, func() { c.polled = at })
}

// Blind implements worker.Observer.
func (c *Counter) Blind(since time.Time) { c.count("blind", func() { c.blind = since }) }

// BlindSince returns what Blind was last called with.
func (c *Counter) BlindSince() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blind
}

// WithPrefix returns how many calls begin so.
func (c *Counter) WithPrefix(prefix string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for what, count := range c.Counts {
		if strings.HasPrefix(what, prefix) {
			n += count
		}
	}
	return n
}

// WithObserver gives a worker an Observer.
func WithObserver(o worker.Observer) func(*worker.Config) {
	return func(c *worker.Config) { c.Observer = o }
}

// AtState is an Observer that does something when the worker enters a state.
type AtState struct {
	worker.Observer
	State  string
	Do     func()
	States []string // all states so far
}

// Entered implements worker.Observer.
func (a *AtState) Entered(state string, _ bool) {
	a.States = append(a.States, state)
	if state == a.State {
		a.Do()
	}
}
