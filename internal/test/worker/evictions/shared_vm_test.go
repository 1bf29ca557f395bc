package evictions

import (
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/vmshare"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// sharedVM makes a worker one of several on its VM, with a runtime directory in path.
func sharedVM(b *rig.Bed, path, instance string) func(*worker.Config) {
	return func(c *worker.Config) {
		b.T.Helper()
		boot := time.Now().Add(-time.Hour)
		dir, err := vmshare.Open(b.T.Context(), vmshare.Config{
			Path: path, Instance: instance, Boot: "boot", Clock: func() time.Duration { return time.Since(boot) },
		})
		if err != nil {
			b.T.Fatal(err)
		}
		b.T.Cleanup(dir.Close)
		c.Instance, c.Runtime, c.Concurrency = instance, dir, 1
	}
}

// countAcknowledgements counts the acknowledgements that the metadata service receives.
func countAcknowledgements(b *rig.Bed) *atomic.Int64 {
	var n atomic.Int64
	b.OnAcknowledge(func() { n.Add(1) })
	return &n
}

// TestLastOfTheVMAcknowledges: of several workers on one VM only the last one to hand
// over its jobs acknowledges the event.
func TestLastOfTheVMAcknowledges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		stubborn := rig.NewStubborn()
		defer stubborn.Finish()
		kinds := job.Kinds{"stubborn": stubborn, "echo": rig.Echo}
		b.Put("stubborn", "stubborn", "")
		slow := b.Start("vm_0", kinds, sharedVM(b, path, "0"))
		b.WaitFor("some work", time.Minute, func() bool { return len(slow.Log.Find("job started")) == 1 })
		quick := b.Start("vm_0", kinds, sharedVM(b, path, "1"))
		b.WaitFor("two workers", time.Minute, func() bool { return quick.Position().State == lifecycle.Process })
		asked := countAcknowledgements(b)
		id := b.Announce("Reboot", rig.ByUser)
		b.WaitFor("the quick one has drained", 2*time.Second, quick.Drained)
		time.Sleep(time.Second)
		if slow.Drained() || started(b, id) || asked.Load() != 0 {
			t.Fatalf("slow worker drained %t, acknowledged %d times, want to wait for it", slow.Drained(), asked.Load())
		}
		if len(quick.Log.Find("event not acknowledged yet")) != 1 {
			t.Error("the worker that waits does not log that exactly once")
		}
		b.WaitFor("acknowledged", 8*time.Second, func() bool { return started(b, id) })
		if !slow.Drained() || b.Record("stubborn").Status != checkpoint.Open {
			t.Error("acknowledged before the last worker had handed everything over")
		}
		time.Sleep(5 * time.Second)
		if asked.Load() != 1 {
			t.Errorf("acknowledged %d times, want once", asked.Load())
		}
	})
}

// TestDeadWorkerOfTheVM: an acknowledgement does not wait for a worker of the VM whose
// process has ended, however it ended.
func TestDeadWorkerOfTheVM(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		// A worker that has jobs, by its lock, and neither a heartbeat nor a process.
		other, err := vmshare.Open(t.Context(), vmshare.Config{Path: path, Instance: "dead"})
		if err != nil {
			t.Fatal(err)
		}
		end, _, err := other.BeginWork(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, sharedVM(b, path, "0"))
		b.WaitFor("process", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
		id := b.Announce("Reboot", rig.ByUser)
		time.Sleep(10 * time.Second)
		if started(b, id) {
			t.Error("acknowledged while another worker has work")
		}
		end() // as the kernel does when a process ends
		other.Close()
		b.WaitFor("acknowledged", 3*time.Second, func() bool { return started(b, id) })
	})
}

// TestLongFreezeOfSeveralWorkers: a pause of the VM that is long enough to save for is
// acknowledged when all its workers have saved their jobs, and none of them stops.
func TestLongFreezeOfSeveralWorkers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 100, Each: time.Second}
		ids := b.PutSteps(2)
		var all []*rig.Process
		for _, name := range []string{"0", "1"} {
			all = append(all, b.Start("vm_0", job.Kinds{"steps": work}, savesSeldom, sharedVM(b, path, name)))
		}
		b.WaitFor("some work", time.Minute, work.AtLeast(ids, 3))
		asked := countAcknowledgements(b)
		id := b.Announce("Freeze")
		b.WaitFor("acknowledged", 8*time.Second, func() bool { return started(b, id) })
		if n := statesSaved(b, ids); n != 2 || asked.Load() != 1 {
			t.Errorf("jobs saved when acknowledged = %d, asked %d times, want 2, once", n, asked.Load())
		}
		for _, p := range all {
			if s := p.Position().State; s != lifecycle.Process {
				t.Errorf("state = %s, want process", s)
			}
		}
	})
}

// TestWorkerThatStartsLate: a worker that starts after another worker of its VM has
// acknowledged an event claims nothing until the event is over, even if it would
// have had time.
func TestWorkerThatStartsLate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		first := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, sharedVM(b, path, "0"))
		b.WaitFor("process", time.Minute, func() bool { return first.Position().State == lifecycle.Process })
		b.Metadata.OnRequest(func(r imds.Request) imds.Fault {
			if r.Method == http.MethodPost {
				return imds.Fault{Status: http.StatusOK, Body: []byte{}} // accepted, and the event does not start yet
			}
			return imds.Fault{}
		})
		redeploy := b.Announce("Redeploy", rig.In(time.Hour))
		reboot := b.Announce("Reboot", rig.ByUser)
		b.WaitFor("both acknowledged", 5*time.Second, func() bool {
			return len(first.Log.Find("event acknowledged; it may start at any moment")) == 2
		})
		b.Metadata.Complete(reboot)
		second := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, sharedVM(b, path, "1"))
		b.Put("a", "echo", "1")
		time.Sleep(30 * time.Second)
		if got := b.Record("a").Status; got != "" || !first.Drained() || !second.Drained() {
			t.Errorf("job under an acknowledged event = %q, drained %t, %t, want it untouched by both", got, first.Drained(), second.Drained())
		}
		b.Metadata.Complete(redeploy)
		b.WaitDone("a", 20*time.Second)
	})
}

// TestRestartAfterAcknowledging: a worker that was killed after it acknowledged an
// event claims nothing until the event is over. It knows of the event from its own
// last heartbeat alone.
func TestRestartAfterAcknowledging(t *testing.T) {
	for _, slowService := range []bool{false, true} {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			first := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
			b.WaitFor("process", time.Minute, func() bool { return first.Position().State == lifecycle.Process })
			var slow atomic.Bool
			b.Metadata.OnRequest(func(r imds.Request) imds.Fault {
				switch {
				case r.Method == http.MethodPost:
					return imds.Fault{Status: http.StatusOK, Body: []byte{}}
				case slow.Load() && r.Path == "/metadata/scheduledevents":
					return imds.Fault{Delay: 20 * time.Second}
				}
				return imds.Fault{}
			})
			redeploy := b.Announce("Redeploy", rig.In(time.Hour))
			reboot := b.Announce("Reboot", rig.ByUser)
			b.WaitFor("both acknowledged", 5*time.Second, func() bool {
				return len(first.Log.Find("event acknowledged; it may start at any moment")) == 2
			})
			first.Kill()
			b.Metadata.Complete(reboot)
			slow.Store(slowService)
			second := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
			b.Put("a", "echo", "1")
			time.Sleep(time.Minute)
			if got := b.Record("a").Status; got != "" || !second.Drained() {
				t.Errorf("slow service %t: job under an acknowledged event = %q, drained %t, want it untouched", slowService, got, second.Drained())
			}
			second.Kill() // its heartbeat still has the content of the run before
			third := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
			time.Sleep(time.Minute)
			if got := b.Record("a").Status; got != "" || !third.Drained() {
				t.Errorf("slow service %t: job after a second restart = %q, want it untouched", slowService, got)
			}
			slow.Store(false)
			b.Metadata.Complete(redeploy)
			b.WaitDone("a", time.Minute)
		})
	}
}
