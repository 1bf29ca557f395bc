package running

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/job"
)

// frozenClock returns a clock that reads the present time plus what freeze adds to it: a
// pause in which no tick comes.
func frozenClock() (c *Clock, freeze func(time.Duration)) {
	var frozen atomic.Int64
	c = &Clock{since: func(begun time.Time) time.Duration { return time.Since(begun) + time.Duration(frozen.Load()) }}
	return c, func(d time.Duration) { frozen.Add(int64(d)) }
}

// TestFrozen: of a pause of the worker neither run time nor silence counts more than the
// longest tick, whether it is met by the ticks or by somebody who reads the clock.
func TestFrozen(t *testing.T) {
	for name, look := range map[string]time.Duration{"a reader looks first": 0, "the ticks look first": tickEvery} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, freeze := frozenClock()
				watch := c.start(nil)
				defer watch.Stop()
				time.Sleep(10*time.Second + tickEvery/2) // the last tick is half a period old
				watch.Reported()
				watch.Saved()
				freeze(25 * time.Second)
				time.Sleep(look)
				synctest.Wait()
				ran, most := 10*time.Second+look, 10*time.Second+longestTick+look
				if got := watch.Elapsed(); got < ran || got > most {
					t.Errorf("elapsed after a pause of 25s = %s, want %s to %s", got, ran, most)
				}
				if got := watch.Silence(); got > longestTick+look {
					t.Errorf("silence after a pause of 25s = %s, want at most %s", got, longestTick+look)
				}
				if got := watch.unsaved(); got > longestTick+look {
					t.Errorf("unsaved work after a pause of 25s = %s, want at most %s", got, longestTick+look)
				}
				before := watch.Elapsed()
				time.Sleep(time.Hour)
				if got := watch.Elapsed() - before; got != time.Hour {
					t.Errorf("an hour after the pause is %s on the clock", got)
				}
			})
		})
	}
}

// TestFrozenJobKeepsItsLimits: a limit is judged by the time for which the worker ran.
func TestFrozenJobKeepsItsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, freeze := frozenClock()
		watch := c.start(nil)
		defer watch.Stop()
		limits := job.Limits{MaxRun: 30 * time.Second, MaxSilence: 20 * time.Second}
		time.Sleep(6 * time.Second)
		freeze(25 * time.Second)
		time.Sleep(6 * time.Second)
		if _, err := Exceeded(limits, watch.Elapsed(), watch.Silence()); err != nil {
			t.Errorf("12 s of work and a pause of 25 s: %v", err)
		}
		time.Sleep(18 * time.Second)
		if reason, _ := Exceeded(limits, watch.Elapsed(), 0); reason != job.Overrun {
			t.Errorf("30 s of work and a pause exceed %q, want %q", reason, job.Overrun)
		}
	})
}

// TestClockInUse: without a handler the clock does not tick, which is no pause for the next
// one, and several handlers share its ticks.
func TestClockInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		for range 3 {
			first, second := c.start(nil), c.start(nil)
			time.Sleep(time.Minute)
			first.Stop()
			first.Stop() // a handler that was abandoned returns
			time.Sleep(time.Minute)
			if got := second.Elapsed(); got != 2*time.Minute {
				t.Errorf("elapsed = %s, want 2m", got)
			}
			second.Stop()
			if c.users != 0 {
				t.Errorf("users of the clock = %d after the end of all, want 0", c.users)
			}
			time.Sleep(time.Hour)
		}
	})
}

// TestClockNeverDecreases reads a clock, with its real time and pauses, in many goroutines.
func TestClockNeverDecreases(t *testing.T) {
	c, freeze := frozenClock()
	var latest atomic.Int64
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 5000 {
				floor := latest.Load()
				now := int64(c.Now())
				if now < floor {
					t.Errorf("the clock went back by %s", time.Duration(floor-now))
					return
				}
				for old := latest.Load(); now > old && !latest.CompareAndSwap(old, now); old = latest.Load() {
				}
				if rand.IntN(100) == 0 {
					freeze(rand.N(2 * longestTick))
				}
			}
		})
	}
	readers.Wait()
}

// TestSplitOfAnAbandonedRun: the two parts of the time of a handler that still runs and
// reports add up to its elapsed time, and none is negative. Two readings of the real
// clock differ.
func TestSplitOfAnAbandonedRun(t *testing.T) {
	watch := new(Clock).start(nil)
	defer watch.Stop()
	p := &job.Progress{State: []byte("a")}
	var reporter sync.WaitGroup
	end := make(chan struct{})
	reporter.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				watch.Stamp(p)
				watch.Reported()
				watch.Saved()
			}
		}
	})
	for range 20000 {
		for _, row := range []struct {
			latest  *job.Progress
			leftOut bool
		}{{p, false}, {nil, false}, {nil, true}} {
			before := watch.Elapsed()
			recorded, lost := watch.Split(row.latest, row.leftOut)
			if after := watch.Elapsed(); recorded < 0 || lost < 0 || recorded+lost < before || recorded+lost > after {
				t.Fatalf("%s recorded and %s lost of %s to %s", recorded, lost, before, after)
			}
		}
		if s, u := watch.Silence(), watch.unsaved(); s < 0 || u < 0 {
			t.Fatalf("silent for %s, unsaved for %s", s, u)
		}
	}
	close(end)
	reporter.Wait()
}
