package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/testing/race"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/survey"
	"github.com/spotworker/spotworker/job"
)

// counter is an Observer that counts its calls, by method and argument.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
	bytes  int64
	spent  map[string]time.Duration
	drain  time.Duration
	polled time.Time
	blind  time.Time
}

func (c *counter) count(what string, f ...func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[what]++
	for _, f := range f {
		f()
	}
}

// of returns the counts of those calls, 0 included.
func (c *counter) of(what ...string) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := map[string]int{}
	for _, w := range what {
		m[w] = c.counts[w]
	}
	return m
}

func (c *counter) Entered(state string, ending bool) {
	c.count(fmt.Sprintf("entered %s %t", state, ending))
}
func (c *counter) Delivered()                           { c.count("delivered") }
func (c *counter) Ended(outcome string)                 { c.count("ended " + outcome) }
func (c *counter) Started(how string)                   { c.count("started " + how) }
func (c *counter) Returned()                            { c.count("returned") }
func (c *counter) Waited(after string, _ time.Duration) { c.count("waited after " + after) }
func (c *counter) Failed(kind, class string)            { c.count("failed " + kind + ", " + class) }
func (c *counter) Committed(kind string, _, _ time.Duration, interruptions, exits int) {
	c.count(fmt.Sprintf("committed %s, %d interruptions, %d exits", kind, interruptions, exits))
}
func (c *counter) Spent(kind, effort string, took time.Duration) {
	c.count("spent", func() {
		if c.spent == nil {
			c.spent = map[string]time.Duration{}
		}
		c.spent[kind+", "+effort] += took
	})
}
func (c *counter) QueueRead(queue string, messages int, oldest time.Duration) {
	c.count(fmt.Sprintf("queue %s read: %d messages, the oldest %s", queue, messages, oldest))
}
func (c *counter) Watch(func() (report, checkpoint time.Duration, silent int)) {}
func (c *counter) Broke(kind string)                                           { c.count("broke " + kind) }
func (c *counter) Recovered(kind string)                                       { c.count("recovered " + kind) }
func (c *counter) Refused(code string)                                         { c.count("refused " + code) }
func (c *counter) OutputSent(int64)                                            { c.count("output sent") }
func (c *counter) SteppedBack()                                                { c.count("stepped back") }
func (c *counter) LeftOut()                                                    { c.count("left out") }
func (c *counter) Moved(reason string)                                         { c.count("moved " + reason) }
func (c *counter) Circles(cause string)                                        { c.count("circles " + cause) }
func (c *counter) Announced(kind, action string)                               { c.count("announced " + kind + ", " + action) }
func (c *counter) Unrecognised()                                               { c.count("unrecognised") }
func (c *counter) Acknowledged(result string)                                  { c.count("acknowledged " + result) }
func (c *counter) Saved(result string, bytes int64, _ time.Duration) {
	c.count("saved "+result, func() { c.bytes += bytes })
}

func (c *counter) Drained(reason string, took time.Duration) {
	c.count("drained "+reason, func() { c.drain = took })
}

func (c *counter) Polled(at time.Time, result string) {
	c.count("polled "+result, func() { c.polled = at })
}
func (c *counter) Blind(since time.Time) { c.count("blind", func() { c.blind = since }) }

func (c *counter) blindSince() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blind
}

// withObserver gives a worker an Observer.
func withObserver(o Observer) func(*Config) { return func(c *Config) { c.Observer = o } }

// TestObserverOfOutcomes: each delivery is counted with its outcome. There is a job
// for every outcome.
func TestObserverOfOutcomes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		c := &counter{}
		tries := 0
		kinds := job.Kinds{
			"echo":      echo,
			"permanent": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) { return nil, job.Permanent(errors.New("no")) }),
			"twice": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
				if tries++; tries == 1 {
					return nil, errors.New("not yet")
				}
				return nil, nil
			}),
			"steps": &steps{n: 1000, each: time.Second},
		}
		for id, kind := range map[string]string{"a": "echo", "b": "echo", "c": "permanent", "d": "twice", "e": "unheard-of", "f": "steps"} {
			b.put(id, kind, "")
		}
		b.putText("foreign")
		p := b.start("vm_0", kinds, func(config *Config) { config.Concurrency = 8 }, withObserver(c))
		b.waitDone("a", time.Minute)
		b.put("a", "echo", "") // which is done already
		b.waitDone("d", time.Minute)
		b.waitFor("the second a", time.Minute, func() bool { return c.of("ended finished")["ended finished"] == 1 })
		time.Sleep(10 * time.Second)
		p.stop()

		want := map[string]int{
			"ended committed": 3, "ended failed": 1, "ended poisoned": 2, "ended finished": 1, "ended released": 1, "ended dropped": 0,
			"started first": 6, "started again": 1, "started resumed": 0, "left out": 0, "drained shutdown": 1,
			"waited after put": 6, "waited after failure": 1, "waited after release": 0, "returned": 7,
			"failed permanent, permanent": 1, "failed twice, error": 1, "failed other, message": 1,
			"committed echo, 0 interruptions, 0 exits": 2, "committed twice, 0 interruptions, 0 exits": 1,
			"entered start false": 0, "entered process false": 1, "entered shutdown true": 1, "entered stopped true": 1,
		}
		var names []string
		for name := range want {
			names = append(names, name)
		}
		if diff := cmp.Diff(want, c.of(names...)); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		if back := c.of("ended put_back")["ended put_back"]; back < 1 {
			t.Errorf("put back = %d, want the unknown kind at least once", back)
		}
		ended := 0
		for what, n := range c.counts {
			if len(what) > 6 && what[:6] == "ended " {
				ended += n
			}
		}
		if delivered := c.counts["delivered"]; delivered != ended {
			t.Errorf("deliveries = %d, ends = %d, want each to end once", delivered, ended)
		}
		if c.counts["saved saved"] < 3 || c.bytes < 12 || c.counts["saved failed"] != 0 {
			t.Errorf("saves = %d with %d bytes, %d failed, want those of job f: one every 5s and the last", c.counts["saved saved"], c.bytes, c.counts["saved failed"])
		}

		handed, redone := c.spent["steps, handed_over"], c.spent["steps, redone"]
		if handed < 9*time.Second || redone > 2*time.Second {
			t.Errorf("job f ran for %s that are recorded and %s that are not, want more than 9s and less than 2s", handed, redone)
		}

		b.start("vm_1", kinds, withObserver(c))
		b.waitFor("the job that was released", time.Minute, func() bool { return c.of("started resumed")["started resumed"] == 1 })
		if got := c.of("waited after release")["waited after release"]; got != 1 {
			t.Errorf("waits after a release = %d, want 1", got)
		}
	})
}

// TestObserverInAnOutage: saves that fail and messages that cannot be released during
// an outage are counted.
func TestObserverInAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		c := &counter{}
		b.put("a", "steps", "")
		work := &steps{n: 1000, each: time.Second}
		p := b.start("vm_0", job.Kinds{"steps": work}, withObserver(c))
		b.waitFor("a checkpoint", 20*time.Second, func() bool { return b.record("a").HasState() })
		b.server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropRequest: true} })
		time.Sleep(time.Minute)
		p.stop()
		got := c.of("ended left", "ended released")
		if diff := cmp.Diff(map[string]int{"ended left": 1, "ended released": 0}, got); diff != "" || c.counts["saved failed"] == 0 {
			t.Errorf("failed saves = %d, want some; counts (-want +got):\n%s", c.counts["saved failed"], diff)
		}
	})
}

// TestObserverOfEvents: each event is counted once, however often the document
// changes, and again if the worker takes another action for it.
func TestObserverOfEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		c := &counter{}
		p := b.start("vm_0", job.Kinds{"echo": echo}, withObserver(c))
		b.waitFor("process", time.Minute, func() bool { return p.machine.State() == lifecycle.Process })
		b.announce("Freeze", lasting(5*time.Second), in(time.Minute))
		time.Sleep(5 * time.Second)
		b.announce("Freeze", lasting(time.Minute), in(time.Minute))
		time.Sleep(5 * time.Second)
		begun := time.Now()
		b.announce("Preempt")
		b.waitFor("the drain", 10*time.Second, func() bool { return p.machine.Position().Facts.Has(lifecycle.WorkReleased) })
		synctest.Wait()
		want := map[string]int{
			"announced Freeze, carry on": 1, "announced Freeze, checkpoint now": 1, "announced Preempt, drain": 1,
			"acknowledged accepted": 2, "acknowledged refused": 0, "drained evicted": 1, "entered shutdown false": 2,
		}
		var names []string
		for name := range want {
			names = append(names, name)
		}
		if diff := cmp.Diff(want, c.of(names...)); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		if c.drain > time.Since(begun) {
			t.Errorf("drain took %s, want it counted from the notice", c.drain)
		}
	})
}

// TestObserverOfPolls: polls are counted by result, and the time since which none was
// answered is reported until one is.
func TestObserverOfPolls(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		c := &counter{}
		b.start("vm_0", job.Kinds{"echo": echo}, withObserver(c))
		time.Sleep(10 * time.Second)
		if got := c.of("polled answered")["polled answered"]; got < 9 || got > 11 {
			t.Errorf("polls answered in 10s = %d, want one a second", got)
		}
		if since := c.blindSince(); !since.IsZero() {
			t.Errorf("blind since %s, want not blind", since)
		}
		gone := time.Now()
		b.metadata.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Status: 500} })
		time.Sleep(10 * time.Second)
		if since := c.blindSince(); since.Sub(gone).Abs() > time.Second {
			t.Errorf("blind since %s, want since the last answer at %s", since, gone)
		}
		b.metadata.OnRequest(nil)
		time.Sleep(5 * time.Second)
		if since := c.blindSince(); !since.IsZero() {
			t.Errorf("blind since %s, want it over", since)
		}
		if got := c.of("polled refused")["polled refused"]; got < 3 {
			t.Errorf("polls refused = %d, want several", got)
		}
	})
}

// TestQueuesAreReadByFewWorkers: what a fleet reads of its queues does not grow with its
// size. The poison queue is among them.
func TestQueuesAreReadByFewWorkers(t *testing.T) {
	race.Skip(t)
	for _, fleet := range []int{1, 30} {
		t.Run(fmt.Sprint(fleet), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *testbed) {
				c := &counter{}
				paused := job.Kinds{"echo": echo}
				for n := range fleet {
					b.start(fmt.Sprintf("vm_%d", n), paused, withObserver(c))
				}
				b.putText("no worker can read this") // ends in the poison queue
				time.Sleep(2 * time.Minute)          // the fleet is listed after one
				const periods = 40
				reads := "queue " + b.poison.Name() + " read: 1 messages, the oldest "
				before := c.withPrefix(reads)
				time.Sleep(periods * survey.Every)
				got := c.withPrefix(reads) - before
				if least, most := periods*min(fleet, survey.Readers)/2, 2*periods*min(fleet, survey.Readers); got < least || got > most {
					t.Errorf("%d workers read the poison queue %d times in %d periods, want between %d and %d", fleet, got, periods, least, most)
				}
			})
		})
	}
}

// withPrefix returns how many calls begin so.
func (c *counter) withPrefix(prefix string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for what, count := range c.counts {
		if strings.HasPrefix(what, prefix) {
			n += count
		}
	}
	return n
}

// TestQueueThatMayNotBeRead: a role that is missing for metrics costs one call an hour.
func TestQueueThatMayNotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		var mu sync.Mutex
		denied := 0
		poison := b.poison.Name()
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation != "GetQueueMetadata" || c.Queue != poison {
				return storage.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			denied++
			return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
		})
		c := &counter{}
		b.start("vm_0", job.Kinds{"echo": echo}, withObserver(c))
		time.Sleep(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if denied < 1 || denied > 2 {
			t.Errorf("calls that were denied in 2 h = %d, want one an hour", denied)
		}
		if got := c.withPrefix("queue " + b.queue.Name()); got < 100 {
			t.Errorf("readings of the queue of jobs = %d, want one every 30s", got)
		}
	})
}
