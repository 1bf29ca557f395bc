package running

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// tickEvery is how often a clock looks at the time while a handler runs.
	tickEvery = time.Second

	// longestTick is how much time passes on a clock between two looks at most. It is
	// longer than a busy machine delays a timer, and shorter than the pauses of a VM in
	// maintenance, which take 7 s in the middle.
	longestTick = 2 * time.Second
)

// Clock measures the time for which the worker runs. While its process, its control group
// or its VM is frozen, time passes for others and no work is done: of such a pause the clock
// counts [longestTick] at most. The zero value is ready to use.
//
// It detects a pause by ticks that did not come, and not by a comparison of CLOCK_BOOTTIME
// with the monotonic clock: those two differ only after the guest has suspended itself, and
// stay together when the host pauses a VM, when it migrates it, and under SIGSTOP.
type Clock struct {
	look atomic.Pointer[look] // the last one; nil before the first

	mu    sync.Mutex
	begun time.Time
	ticks *time.Timer // while a stopwatch runs
	users int         // stopwatches that run

	since func(time.Time) time.Duration // nil for time.Since
}

// look is a look at the time.
type look struct {
	at   time.Duration // since the clock began
	lost time.Duration // how much of it the worker was frozen
}

// Now returns for how long the worker has run since an unspecified moment. It never
// decreases.
func (c *Clock) Now() time.Duration {
	if last := c.look.Load(); last != nil {
		if at := c.passed(); at-last.at <= longestTick {
			return at - last.lost
		}
	}
	return c.tick()
}

// tick looks at the time.
func (c *Clock) tick() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.look.Load()
	if last == nil {
		c.begun = time.Now()
		last = &look{}
	}
	at := c.passed() // read in the lock, so that a look is never older than the last one
	next := &look{at: at, lost: last.lost + max(at-last.at-longestTick, 0)}
	c.look.Store(next)
	return next.at - next.lost
}

func (c *Clock) passed() time.Duration {
	if c.since != nil {
		return c.since(c.begun)
	}
	return time.Since(c.begun)
}

// use makes the clock tick until each call has been answered by one of leave.
func (c *Clock) use() (begun time.Duration) {
	begun = c.tick()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
	if c.users > 1 {
		return begun
	}
	if c.ticks == nil {
		c.ticks = time.AfterFunc(tickEvery, c.tickAgain)
	} else {
		c.ticks.Reset(tickEvery)
	}
	return begun
}

func (c *Clock) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	if c.users == 0 {
		c.ticks.Stop()
	}
}

func (c *Clock) tickAgain() {
	c.tick()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users > 0 {
		c.ticks.Reset(tickEvery)
	}
}
