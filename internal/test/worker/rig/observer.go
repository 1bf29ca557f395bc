package rig

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/internal/worker"
)

// Counter is an observer that counts events, by their names and words.
type Counter struct {
	mu     sync.Mutex
	Counts map[string]int
	Bytes  int64
	Times  map[string]time.Duration
	Drain  time.Duration
	blind  time.Time
}

// Observe counts an event.
func (c *Counter) Observe(e observe.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Counts == nil {
		c.Counts, c.Times = map[string]int{}, map[string]time.Duration{}
	}
	c.Counts[nameOf(e)]++
	switch e := e.(type) {
	case observe.Spent:
		c.Times[e.Kind+", "+e.Effort] += e.Took
	case observe.Saved:
		c.Bytes += e.Bytes
	case observe.Drained:
		c.Drain = e.Took
	case observe.Blind:
		c.blind = e.Since
	}
}

// nameOf returns an event's name, and its words where it has some.
func nameOf(e observe.Event) string {
	switch e := e.(type) {
	case observe.Failed:
		return fmt.Sprintf("failed %s, %s", e.Kind, e.Class)
	case observe.Committed:
		return fmt.Sprintf("committed %s, %d interruptions, %d exits", e.Kind, e.Interruptions, e.Exits)
	case observe.QueueRead:
		return fmt.Sprintf("queue %s read: %d messages, the oldest %s", e.Queue, e.Messages, e.Oldest)
	case observe.Announced:
		return fmt.Sprintf("announced %s, %s", e.Type, e.Action)
	case observe.Waited:
		return "waited after " + e.After
	case observe.Saved:
		return "saved " + e.Result
	case observe.Drained:
		return "drained " + e.Reason
	case observe.Polled:
		return "polled " + string(e.Result)
	case observe.LeftOut:
		return "left out"
	case observe.OutputSent:
		return "output sent"
	case observe.Spent, observe.Blind, observe.Watching:
		return strings.ToLower(fmt.Sprintf("%T", e)[len("observe."):])
	}
	return strings.TrimSpace(strings.ToLower(fmt.Sprintf("%T ", e)[len("observe."):]) + strings.Trim(fmt.Sprint(e), "{}"))
}

// Of returns the counts of events with those names, 0 included.
func (c *Counter) Of(names ...string) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := map[string]int{}
	for _, name := range names {
		m[name] = c.Counts[name]
	}
	return m
}

// BlindSince returns since when the worker was blind at the last report.
func (c *Counter) BlindSince() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blind
}

// WithPrefix returns how many events have names that begin so.
func (c *Counter) WithPrefix(prefix string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, count := range c.Counts {
		if strings.HasPrefix(name, prefix) {
			n += count
		}
	}
	return n
}

// Observed gives a worker an observer.
func Observed(o interface{ Observe(observe.Event) }) func(*worker.Config) {
	return func(c *worker.Config) { c.Observe = o.Observe }
}

// AtState is an observer that does something when the worker enters a state.
type AtState struct {
	State  lifecycle.State
	Do     func()
	States []string // all states so far
}

// Observe looks for the state.
func (a *AtState) Observe(e observe.Event) {
	entered, ok := e.(observe.Entered)
	if !ok {
		return
	}
	a.States = append(a.States, entered.State.String())
	if entered.State == a.State && a.Do != nil {
		a.Do()
	}
}
