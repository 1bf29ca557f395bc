package worker

import (
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/events"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/runtimedir"
	"github.com/spotworker/spotworker/job"
)

// sharedVM makes a worker one of several on its VM, with a runtime directory in path.
func (b *testbed) sharedVM(path, instance string) func(*Config) {
	return func(c *Config) {
		b.t.Helper()
		boot := time.Now().Add(-time.Hour)
		dir, err := runtimedir.Open(b.t.Context(), runtimedir.Config{
			Path: path, Instance: instance, Boot: "boot", Clock: func() time.Duration { return time.Since(boot) },
		})
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(dir.Close)
		c.Instance, c.Runtime, c.Concurrency = instance, dir, 1
	}
}

// asLeader makes the first VM that an event names acknowledge it for all of them.
func asLeader(c *Config) { c.Acknowledge = events.AcknowledgeLeader }

// drained reports whether the worker has released all its jobs in shutdown.
func (p *process) drained() bool {
	return p.machine.Position().Facts.Has(lifecycle.WorkReleased) && p.machine.State() == lifecycle.Shutdown
}

// countAcknowledgements counts the acknowledgements that the metadata service receives.
func (b *testbed) countAcknowledgements() *atomic.Int64 {
	var n atomic.Int64
	b.onAcknowledge(func() { n.Add(1) })
	return &n
}

// TestLastOfTheVMAcknowledges: of several workers on one VM only the last one to hand
// over its jobs acknowledges the event.
func TestLastOfTheVMAcknowledges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	inBubble(t, func(t *testing.T, b *testbed) {
		stubborn := newStubborn()
		defer stubborn.finish()
		kinds := job.Kinds{"stubborn": stubborn, "echo": echo}
		b.put("stubborn", "stubborn", "")
		slow := b.start("vm_0", kinds, b.sharedVM(path, "0"))
		b.waitFor("some work", time.Minute, func() bool { return len(slow.log.find("job started")) == 1 })
		quick := b.start("vm_0", kinds, b.sharedVM(path, "1"))
		b.waitFor("two workers", time.Minute, func() bool { return quick.machine.State() == lifecycle.Process })
		asked := b.countAcknowledgements()
		id := b.announce("Reboot", byUser)
		b.waitFor("the quick one has drained", 2*time.Second, quick.drained)
		time.Sleep(time.Second)
		if slow.drained() || b.started(id) || asked.Load() != 0 {
			t.Fatalf("slow worker drained %t, acknowledged %d times, want to wait for it", slow.drained(), asked.Load())
		}
		if len(quick.log.find("event not acknowledged yet")) != 1 {
			t.Error("the worker that waits does not log that exactly once")
		}
		b.waitFor("acknowledged", 8*time.Second, func() bool { return b.started(id) })
		if !slow.drained() || b.record("stubborn").Status != checkpoint.Open {
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
	inBubble(t, func(t *testing.T, b *testbed) {
		// A worker that has jobs, by its lock, and neither a heartbeat nor a process.
		other, err := runtimedir.Open(t.Context(), runtimedir.Config{Path: path, Instance: "dead"})
		if err != nil {
			t.Fatal(err)
		}
		end, _, err := other.BeginWork(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := b.start("vm_0", job.Kinds{"echo": echo}, b.sharedVM(path, "0"))
		b.waitFor("process", time.Minute, func() bool { return p.machine.State() == lifecycle.Process })
		id := b.announce("Reboot", byUser)
		time.Sleep(10 * time.Second)
		if b.started(id) {
			t.Error("acknowledged while another worker has work")
		}
		end() // as the kernel does when a process ends
		other.Close()
		b.waitFor("acknowledged", 3*time.Second, func() bool { return b.started(id) })
	})
}

// TestLongFreezeOfSeveralWorkers: a pause of the VM that is long enough to save for is
// acknowledged when all its workers have saved their jobs, and none of them stops.
func TestLongFreezeOfSeveralWorkers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	inBubble(t, func(t *testing.T, b *testbed) {
		work := &steps{n: 100, each: time.Second}
		ids := b.putSteps(2)
		var all []*process
		for _, name := range []string{"0", "1"} {
			all = append(all, b.start("vm_0", job.Kinds{"steps": work}, savesSeldom, b.sharedVM(path, name)))
		}
		b.waitFor("some work", time.Minute, work.atLeast(ids, 3))
		asked := b.countAcknowledgements()
		id := b.announce("Freeze")
		b.waitFor("acknowledged", 8*time.Second, func() bool { return b.started(id) })
		if n := b.statesSaved(ids); n != 2 || asked.Load() != 1 {
			t.Errorf("jobs saved when acknowledged = %d, asked %d times, want 2, once", n, asked.Load())
		}
		for _, p := range all {
			if s := p.machine.State(); s != lifecycle.Process {
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
	inBubble(t, func(t *testing.T, b *testbed) {
		first := b.start("vm_0", job.Kinds{"echo": echo}, b.sharedVM(path, "0"))
		b.waitFor("process", time.Minute, func() bool { return first.machine.State() == lifecycle.Process })
		b.metadata.OnRequest(func(r imds.Request) imds.Fault {
			if r.Method == http.MethodPost {
				return imds.Fault{Status: http.StatusOK, Body: []byte{}} // accepted, and the event does not start yet
			}
			return imds.Fault{}
		})
		redeploy := b.announce("Redeploy", in(time.Hour))
		reboot := b.announce("Reboot", byUser)
		b.waitFor("both acknowledged", 5*time.Second, func() bool {
			return len(first.log.find("event acknowledged; it may start at any moment")) == 2
		})
		b.metadata.Complete(reboot)
		second := b.start("vm_0", job.Kinds{"echo": echo}, b.sharedVM(path, "1"))
		b.put("a", "echo", "1")
		time.Sleep(30 * time.Second)
		if got := b.record("a").Status; got != "" || !first.drained() || !second.drained() {
			t.Errorf("job under an acknowledged event = %q, drained %t, %t, want it untouched by both", got, first.drained(), second.drained())
		}
		b.metadata.Complete(redeploy)
		b.waitDone("a", 20*time.Second)
	})
}

// TestRestartAfterAcknowledging: a worker that was killed after it acknowledged an
// event claims nothing until the event is over. It knows of the event from its own
// last heartbeat alone.
func TestRestartAfterAcknowledging(t *testing.T) {
	for _, slowService := range []bool{false, true} {
		inBubble(t, func(t *testing.T, b *testbed) {
			first := b.start("vm_0", job.Kinds{"echo": echo})
			b.waitFor("process", time.Minute, func() bool { return first.machine.State() == lifecycle.Process })
			var slow atomic.Bool
			b.metadata.OnRequest(func(r imds.Request) imds.Fault {
				switch {
				case r.Method == http.MethodPost:
					return imds.Fault{Status: http.StatusOK, Body: []byte{}}
				case slow.Load() && r.Path == "/metadata/scheduledevents":
					return imds.Fault{Delay: 20 * time.Second}
				}
				return imds.Fault{}
			})
			redeploy := b.announce("Redeploy", in(time.Hour))
			reboot := b.announce("Reboot", byUser)
			b.waitFor("both acknowledged", 5*time.Second, func() bool {
				return len(first.log.find("event acknowledged; it may start at any moment")) == 2
			})
			first.kill()
			b.metadata.Complete(reboot)
			slow.Store(slowService)
			second := b.start("vm_0", job.Kinds{"echo": echo})
			b.put("a", "echo", "1")
			time.Sleep(time.Minute)
			if got := b.record("a").Status; got != "" || !second.drained() {
				t.Errorf("slow service %t: job under an acknowledged event = %q, drained %t, want it untouched", slowService, got, second.drained())
			}
			second.kill() // its heartbeat still has what the run before wrote
			third := b.start("vm_0", job.Kinds{"echo": echo})
			time.Sleep(time.Minute)
			if got := b.record("a").Status; got != "" || !third.drained() {
				t.Errorf("slow service %t: job after a second restart = %q, want it untouched", slowService, got)
			}
			slow.Store(false)
			b.metadata.Complete(redeploy)
			b.waitDone("a", time.Minute)
		})
	}
}

// TestLeader: the first of several VMs that an event names acknowledges it, once the
// workers of all of them have handed over their jobs.
func TestLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		stubborn := newStubborn()
		defer stubborn.finish()
		kinds := job.Kinds{"stubborn": stubborn, "echo": echo}
		b.put("stubborn", "stubborn", "")
		member := b.start("vm_1", kinds, asLeader)
		b.waitFor("some work", time.Minute, func() bool { return len(member.log.find("job started")) == 1 })
		leader := b.start("vm_0", kinds, asLeader)
		b.waitFor("two workers", time.Minute, func() bool { return leader.machine.State() == lifecycle.Process })
		asked := b.countAcknowledgements()
		id := b.announce("Reboot", byUser, func(e *imds.Event) { e.Resources = []string{"VM_0", "VM_1"} })
		b.waitFor("the leader has drained", 2*time.Second, leader.drained)
		time.Sleep(2 * time.Second)
		if b.started(id) || member.drained() {
			t.Fatal("acknowledged before the other VM's worker had handed everything over")
		}
		waits := leader.log.find("event not acknowledged yet")
		if want := "worker vm_1-11112222-0 of VM VM_1 is not ready"; len(waits) != 1 || waits[0]["reason"] != want {
			t.Errorf("log = %v, want one line: %s", waits, want)
		}
		b.waitFor("acknowledged", 8*time.Second, func() bool { return b.started(id) })
		if !member.drained() || b.record("stubborn").Status != checkpoint.Open || asked.Load() != 1 {
			t.Errorf("member drained %t, acknowledged %d times, want true, once", member.drained(), asked.Load())
		}
	})
}

// TestLeaderWaitsForAnUnknownVM: the leader does not acknowledge an event that also
// names a VM without a worker. The event starts at its own time.
func TestLeaderWaitsForAnUnknownVM(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		p := b.start("vm_0", job.Kinds{"echo": echo}, asLeader)
		b.waitFor("process", time.Minute, func() bool { return p.machine.State() == lifecycle.Process })
		asked := b.countAcknowledgements()
		b.announce("Reboot", byUser, in(10*time.Minute), func(e *imds.Event) { e.Resources = []string{"vm_0", "db_0"} })
		time.Sleep(9 * time.Minute)
		if asked.Load() != 0 {
			t.Errorf("acknowledged %d times for a VM that is not ours", asked.Load())
		}
		waits := p.log.find("event not acknowledged yet")
		if want := "no worker of VM db_0 has been heard of for 45s"; len(waits) != 1 || waits[0]["reason"] != want {
			t.Errorf("log = %v, want one line: %s", waits, want)
		}
	})
}
