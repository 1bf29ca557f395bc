package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/health"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/job"
)

// withLoops makes a worker report its loops to all, where the test checks them.
func withLoops(all *health.Loops) func(*Config) { return func(c *Config) { c.Loops = all } }

// healthyFor lets that time pass, and fails the test at the first second at which the
// worker is unhealthy.
func (b *testbed) healthyFor(d time.Duration, all *health.Loops, what string) {
	b.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		if r := all.Check(time.Now()); !r.Healthy() {
			b.t.Fatalf("%s: %s, want it healthy", what, r)
		}
	}
}

// stuck returns the names of the loops that hang.
func stuck(all *health.Loops) (names []string) {
	for _, s := range all.Check(time.Now()).Stuck {
		names = append(names, s.Loop)
	}
	return names
}

// TestHealthyDuringOutages: a worker stays healthy while storage refuses its calls
// or does not answer and the metadata service hangs, in every state and however long
// that lasts.
func TestHealthyDuringOutages(t *testing.T) {
	for name, fault := range map[string]storage.Fault{
		"refused":   {Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch", Message: "no"}},
		"cut":       {DropRequest: true},
		"no answer": {Before: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *testbed) {
				var all health.Loops
				outage := func() {
					b.server.OnCall(func(storage.Call) storage.Fault { return fault })
					b.metadata.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Hang: true} })
				}
				outage()
				work := &steps{n: 10_000, each: time.Second}
				p := b.start("vm_0", job.Kinds{"steps": work}, withLoops(&all))
				b.healthyFor(20*time.Minute, &all, "warm-up in an outage")
				if s := p.machine.State(); s != lifecycle.Start {
					t.Fatalf("state = %s, want start", s)
				}

				b.server.OnCall(nil)
				b.metadata.OnRequest(nil)
				b.put("long", "steps", "")
				b.waitFor("work", 2*time.Minute, func() bool { return work.done("long") > 0 })
				outage()
				b.healthyFor(20*time.Minute, &all, "work in an outage")
				p.term()
				b.healthyFor(time.Minute, &all, "drain in an outage")
				<-p.ended
			})
		})
	}
}

// TestDrainingIsHealthy: a worker that drains after a notice, and then waits for the
// end of its VM, is healthy.
func TestDrainingIsHealthy(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		var all health.Loops
		handler := newStubborn()
		defer handler.finish()
		b.put("a", "stubborn", "")
		p := b.start("vm_0", job.Kinds{"stubborn": handler}, withLoops(&all))
		b.waitFor("a checkpoint", 20*time.Second, func() bool { return b.record("a").HasState() })
		b.announce("Reboot", in(20*time.Minute))
		b.healthyFor(time.Hour, &all, "a notice of minutes, the drain, and the wait after it")
		if got := p.machine.Position(); got.State != lifecycle.Shutdown || !got.Facts.Has(lifecycle.WorkReleased) {
			t.Errorf("position = %s, want shutdown, drained", got)
		}
	})
}

// TestWaitingForLastJobsIsHealthy: after a notice of minutes a worker waits for its
// last jobs for longer than a turn of the claim loop may take, and is healthy.
func TestWaitingForLastJobsIsHealthy(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		var all health.Loops
		b.put("a", "steps", "")
		p := b.start("vm_0", job.Kinds{"steps": &steps{n: 1150, each: time.Second}}, withLoops(&all))
		b.waitFor("process", time.Minute, func() bool { return p.machine.State() == lifecycle.Process })
		b.announce("Reboot", in(20*time.Minute))
		b.healthyFor(20*time.Minute, &all, "waiting for the last jobs")
		b.waitDone("a", time.Second)
	})
}

// TestStuckLoops: a call that ignores its context and does not return makes the
// worker unhealthy, with the names of the loops that wait for it, until it returns.
func TestStuckLoops(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		var all health.Loops
		p := b.start("vm_0", job.Kinds{"echo": echo}, withLoops(&all))
		b.waitFor("process", time.Minute, func() bool { return p.machine.State() == lifecycle.Process })
		b.healthyFor(5*time.Minute, &all, "an idle worker")

		release := p.link.hold()
		b.healthyFor(time.Minute, &all, "a call that takes a minute")
		b.waitFor("the worker is unhealthy", 5*time.Minute, func() bool { return len(stuck(&all)) == 2 })
		if got, want := stuck(&all), []string{"claim", "presence"}; !slices.Equal(got, want) {
			t.Errorf("stuck loops = %q, want %q", got, want)
		}
		release()
		b.waitFor("the worker is healthy", time.Minute, func() bool { return all.Check(time.Now()).Healthy() })

		release = p.link.hold()
		time.Sleep(2 * longestPoll) // a claim is under way
		p.term()
		b.waitFor("a drain that does not end is unhealthy", time.Minute, func() bool { return slices.Contains(stuck(&all), "phase") })
		release()
		<-p.ended
		time.Sleep(time.Hour)
		if got := stuck(&all); len(got) != 0 {
			t.Errorf("stuck after the end = %q, want none", got)
		}
	})
}
