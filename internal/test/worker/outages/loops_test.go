package outages

import (
	"slices"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/telemetry/health"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/worker/intake"
	"github.com/spotworker/spotworker/job"
)

// withLoops makes a worker report its loops to all, where the test checks them.
func withLoops(all *health.Loops) func(*worker.Config) {
	return func(c *worker.Config) { c.Loops = all }
}

// healthyFor lets that time pass, and fails the test at the first second at which the
// worker is unhealthy.
func healthyFor(b *rig.Bed, d time.Duration, all *health.Loops, what string) {
	b.T.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		if r := all.Check(time.Now()); !r.Healthy() {
			b.T.Fatalf("%s: %s, want it healthy", what, r)
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
	lasts := time.Duration(proof.Times(8, 20)) * time.Minute
	for name, fault := range map[string]storage.Fault{
		"refused":   {Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch", Message: "no"}},
		"cut":       {DropRequest: true},
		"no answer": {Before: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				var all health.Loops
				outage := func() {
					b.Server.OnCall(func(storage.Call) storage.Fault { return fault })
					b.Metadata.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Hang: true} })
				}
				outage()
				work := &rig.Steps{N: 10_000, Each: time.Second}
				p := b.Start("vm_0", job.Kinds{"steps": work}, withLoops(&all))
				healthyFor(b, lasts, &all, "warm-up in an outage")
				if s := p.Position().State; s != lifecycle.Start {
					t.Fatalf("state = %s, want start", s)
				}

				b.Server.OnCall(nil)
				b.Metadata.OnRequest(nil)
				b.Put("long", "steps", "")
				b.WaitFor("work", 2*time.Minute, func() bool { return work.Done("long") > 0 })
				outage()
				healthyFor(b, lasts, &all, "work in an outage")
				p.Term()
				healthyFor(b, time.Minute, &all, "drain in an outage")
				<-p.Ended
			})
		})
	}
}

// TestDrainingIsHealthy: a worker that drains after a notice, and then waits for the
// end of its VM, is healthy.
func TestDrainingIsHealthy(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var all health.Loops
		handler := rig.NewStubborn()
		defer handler.Finish()
		b.Put("a", "stubborn", "")
		p := b.Start("vm_0", job.Kinds{"stubborn": handler}, withLoops(&all))
		b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("a").HasState() })
		b.Announce("Reboot", rig.In(20*time.Minute))
		healthyFor(b, time.Hour, &all, "a notice of minutes, the drain, and the wait after it")
		if got := p.Position(); got.State != lifecycle.Shutdown || !got.Facts.Has(lifecycle.WorkReleased) {
			t.Errorf("position = %s, want shutdown, drained", got)
		}
	})
}

// TestWaitingForLastJobsIsHealthy: after a notice of minutes a worker waits for its
// last jobs for longer than a turn of the claim loop may take, and is healthy.
func TestWaitingForLastJobsIsHealthy(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var all health.Loops
		b.Put("a", "steps", "")
		p := b.Start("vm_0", job.Kinds{"steps": &rig.Steps{N: 1150, Each: time.Second}}, withLoops(&all))
		b.WaitFor("process", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
		b.Announce("Reboot", rig.In(20*time.Minute))
		healthyFor(b, 20*time.Minute, &all, "waiting for the last jobs")
		b.WaitDone("a", time.Second)
	})
}

// TestStuckLoops: a call that ignores its context and does not return makes the
// worker unhealthy, with the names of the loops that wait for it, until it returns.
func TestStuckLoops(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var all health.Loops
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, withLoops(&all))
		b.WaitFor("process", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
		healthyFor(b, 5*time.Minute, &all, "an idle worker")

		release := p.Link.Hold()
		defer func() { release() }() // a worker that waits for a call does not end
		healthyFor(b, 50*time.Second, &all, "a call that takes 50 s")
		b.WaitFor("the worker is unhealthy", 5*time.Minute, func() bool { return len(stuck(&all)) == 2 })
		if got, want := stuck(&all), []string{"claim", "presence"}; !slices.Equal(got, want) {
			t.Errorf("stuck loops = %q, want %q", got, want)
		}
		release()
		b.WaitFor("the worker is healthy", time.Minute, func() bool { return all.Check(time.Now()).Healthy() })

		release = p.Link.Hold()
		time.Sleep(2 * intake.LongestPoll) // a claim is under way
		p.Term()
		b.WaitFor("a drain that does not end is unhealthy", time.Minute, func() bool { return slices.Contains(stuck(&all), "phase") })
		release()
		<-p.Ended
		time.Sleep(time.Hour)
		if got := stuck(&all); len(got) != 0 {
			t.Errorf("stuck after the end = %q, want none", got)
		}
	})
}
