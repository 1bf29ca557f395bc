package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/worker/queuestats"
	"github.com/spotworker/spotworker/job"
)

// TestObserverOfOutcomes: each delivery is counted with its outcome. There is a job
// for every outcome.
func TestObserverOfOutcomes(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		c := &rig.Counter{}
		tries := 0
		kinds := job.Kinds{
			"echo":      rig.Echo,
			"permanent": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) { return nil, job.Permanent(errors.New("no")) }),
			"twice": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
				if tries++; tries == 1 {
					return nil, errors.New("not yet")
				}
				return nil, nil
			}),
			"steps": &rig.Steps{N: 1000, Each: time.Second},
		}
		for id, kind := range map[string]string{"a": "echo", "b": "echo", "c": "permanent", "d": "twice", "e": "unheard-of", "f": "steps"} {
			b.Put(id, kind, "")
		}
		b.PutText("foreign")
		p := b.Start("vm_0", kinds, func(config *worker.Config) { config.Concurrency = 8 }, rig.Observed(c))
		b.WaitDone("a", time.Minute)
		b.Put("a", "echo", "") // which is done already
		b.WaitDone("d", time.Minute)
		b.WaitFor("the second a", time.Minute, func() bool { return c.Of("ended finished")["ended finished"] == 1 })
		time.Sleep(10 * time.Second)
		p.Stop()

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
		if diff := cmp.Diff(want, c.Of(names...)); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		if back := c.Of("ended put_back")["ended put_back"]; back < 1 {
			t.Errorf("put back = %d, want the unknown kind at least once", back)
		}
		ended := 0
		for what, n := range c.Counts {
			if len(what) > 6 && what[:6] == "ended " {
				ended += n
			}
		}
		if delivered := c.Counts["delivered"]; delivered != ended {
			t.Errorf("deliveries = %d, ends = %d, want each to end once", delivered, ended)
		}
		if c.Counts["saved saved"] < 3 || c.Bytes < 12 || c.Counts["saved failed"] != 0 {
			t.Errorf("saves = %d with %d bytes, %d failed, want those of job f: one every 5s and the last", c.Counts["saved saved"], c.Bytes,
				c.Counts["saved failed"])
		}

		handed, redone := c.Times["steps, handed_over"], c.Times["steps, redone"]
		if handed < 9*time.Second || redone > 2*time.Second {
			t.Errorf("job f ran for %s that are recorded and %s that are not, want more than 9s and less than 2s", handed, redone)
		}

		b.Start("vm_1", kinds, rig.Observed(c))
		b.WaitFor("the job that was released", time.Minute, func() bool { return c.Of("started resumed")["started resumed"] == 1 })
		if got := c.Of("waited after release")["waited after release"]; got != 1 {
			t.Errorf("waits after a release = %d, want 1", got)
		}
	})
}

// TestObserverInAnOutage: saves that fail and messages that cannot be released during
// an outage are counted.
func TestObserverInAnOutage(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		c := &rig.Counter{}
		b.Put("a", "steps", "")
		work := &rig.Steps{N: 1000, Each: time.Second}
		p := b.Start("vm_0", job.Kinds{"steps": work}, rig.Observed(c))
		b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("a").HasState() })
		b.Server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropRequest: true} })
		time.Sleep(time.Minute)
		p.Stop()
		got := c.Of("ended left", "ended released")
		if diff := cmp.Diff(map[string]int{"ended left": 1, "ended released": 0}, got); diff != "" || c.Counts["saved failed"] == 0 {
			t.Errorf("failed saves = %d, want some; counts (-want +got):\n%s", c.Counts["saved failed"], diff)
		}
	})
}

// TestObserverOfEvents: each event is counted once, however often the document
// changes, and again if the worker takes another action for it.
func TestObserverOfEvents(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		c := &rig.Counter{}
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, rig.Observed(c))
		b.WaitFor("process", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
		b.Announce("Freeze", rig.Lasting(5*time.Second), rig.In(time.Minute))
		time.Sleep(5 * time.Second)
		b.Announce("Freeze", rig.Lasting(time.Minute), rig.In(time.Minute))
		time.Sleep(5 * time.Second)
		begun := time.Now()
		b.Announce("Preempt")
		b.WaitFor("the drain", 10*time.Second, func() bool { return p.Position().Facts.Has(lifecycle.WorkReleased) })
		synctest.Wait()
		want := map[string]int{
			"announced Freeze, carry on": 1, "announced Freeze, checkpoint now": 1, "announced Preempt, drain": 1,
			"acknowledged accepted": 2, "acknowledged refused": 0, "drained evicted": 1, "entered shutdown false": 2,
		}
		var names []string
		for name := range want {
			names = append(names, name)
		}
		if diff := cmp.Diff(want, c.Of(names...)); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		if c.Drain > time.Since(begun) {
			t.Errorf("drain took %s, want it counted from the notice", c.Drain)
		}
	})
}

// TestObserverOfPolls: polls are counted by result, and the time since which none was
// answered is reported until one is.
func TestObserverOfPolls(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		c := &rig.Counter{}
		b.Start("vm_0", job.Kinds{"echo": rig.Echo}, rig.Observed(c))
		time.Sleep(10 * time.Second)
		if got := c.Of("polled answered")["polled answered"]; got < 9 || got > 11 {
			t.Errorf("polls answered in 10s = %d, want one a second", got)
		}
		if since := c.BlindSince(); !since.IsZero() {
			t.Errorf("blind since %s, want not blind", since)
		}
		gone := time.Now()
		b.Metadata.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Status: 500} })
		time.Sleep(10 * time.Second)
		if since := c.BlindSince(); since.Sub(gone).Abs() > time.Second {
			t.Errorf("blind since %s, want since the last answer at %s", since, gone)
		}
		b.Metadata.OnRequest(nil)
		time.Sleep(5 * time.Second)
		if since := c.BlindSince(); !since.IsZero() {
			t.Errorf("blind since %s, want it over", since)
		}
		if got := c.Of("polled refused")["polled refused"]; got < 3 {
			t.Errorf("polls refused = %d, want several", got)
		}
	})
}

// TestQueuesAreReadByFewWorkers: a fleet's reads of its queues do not grow with its size.
// The poison queue is among them.
func TestQueuesAreReadByFewWorkers(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	for _, fleet := range []int{1, 30} {
		t.Run(fmt.Sprint(fleet), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				c := &rig.Counter{}
				paused := job.Kinds{"echo": rig.Echo}
				for n := range fleet {
					b.Start(fmt.Sprintf("vm_%d", n), paused, rig.Observed(c))
				}
				b.PutText("no worker can read this") // ends in the poison queue
				time.Sleep(2 * time.Minute)          // the fleet is listed after one
				const periods = 40
				reads := "queue " + b.Poison.Name() + " read: 1 messages, the oldest "
				before := c.WithPrefix(reads)
				time.Sleep(periods * queuestats.Every)
				got := c.WithPrefix(reads) - before
				if least, most := periods*min(fleet, queuestats.Readers)/2, 2*periods*min(fleet, queuestats.Readers); got < least || got > most {
					t.Errorf("%d workers read the poison queue %d times in %d periods, want between %d and %d", fleet, got, periods, least, most)
				}
			})
		})
	}
}

// TestDepthsArePublishedForEachScaleSet: of two scale sets on one queue, the smaller one's worker
// publishes as often as the larger one's workers together need to.
func TestDepthsArePublishedForEachScaleSet(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var large, small atomic.Int64
		queueName := b.Poison.Name() // which is read too
		publish := func(set string, count *atomic.Int64) func(*worker.Config) {
			return func(c *worker.Config) {
				c.DepthsOf, c.PublishDepth = set, func(queue string, _ int, _ time.Duration) {
					if queue == queueName {
						count.Add(1)
					}
				}
			}
		}
		for i := range 8 {
			b.Start(fmt.Sprintf("vm_%d", i), job.Kinds{"echo": rig.Echo}, publish("large", &large))
		}
		b.Start("vm_alone", job.Kinds{"echo": rig.Echo}, publish("small", &small))
		time.Sleep(7 * time.Minute)
		large.Store(0)
		small.Store(0)
		const watched = 20 * time.Minute
		time.Sleep(watched)
		rounds := int64(watched / queuestats.Every)
		if small.Load() < rounds*9/10 {
			t.Errorf("the lone worker of a set published %d times in %s, want about %d", small.Load(), watched, rounds)
		}
		if n := large.Load(); n < 2*rounds || n > 4*rounds {
			t.Errorf("8 workers of a set published %d times, want about %d: %d each time", n, queuestats.Readers*rounds, queuestats.Readers)
		}
	})
}

// TestQueueThatMayNotBeRead: a role that is missing for metrics costs one call an hour.
func TestQueueThatMayNotBeRead(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var mu sync.Mutex
		denied := 0
		poison := b.Poison.Name()
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation != "GetQueueMetadata" || c.Queue != poison {
				return storage.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			denied++
			return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
		})
		c := &rig.Counter{}
		b.Start("vm_0", job.Kinds{"echo": rig.Echo}, rig.Observed(c))
		passed := time.Duration(proof.Times(62, 120)) * time.Minute
		time.Sleep(passed)
		mu.Lock()
		defer mu.Unlock()
		if denied < 1 || denied > 2 {
			t.Errorf("calls that were denied in %s = %d, want one an hour", passed, denied)
		}
		if got := c.WithPrefix("queue " + b.Queue.Name()); got < int(passed/(72*time.Second)) {
			t.Errorf("readings of the queue of jobs = %d, want one every 30s", got)
		}
	})
}
