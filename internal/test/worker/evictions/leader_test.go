package evictions

import (
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/renewal"
	"github.com/spotworker/spotworker/internal/events"
	"github.com/spotworker/spotworker/internal/fleet/vmshare"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// asLeader makes one of the VMs that an event names acknowledge it for all of them.
func asLeader(c *worker.Config) { c.Acknowledge = events.AcknowledgeLeader }

// TestLeader: the first of several VMs that an event names acknowledges it, once the
// workers of all of them have handed over their jobs.
func TestLeader(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		stubborn := rig.NewStubborn()
		defer stubborn.Finish()
		kinds := job.Kinds{"stubborn": stubborn, "echo": rig.Echo}
		b.Put("stubborn", "stubborn", "")
		member := b.Start("vm_1", kinds, asLeader)
		b.WaitFor("some work", time.Minute, func() bool { return len(member.Log.Find("job started")) == 1 })
		leader := b.Start("vm_0", kinds, asLeader)
		b.WaitFor("two workers", time.Minute, func() bool { return leader.Position().State == lifecycle.Process })
		asked := countAcknowledgements(b)
		id := b.Announce("Reboot", rig.ByUser, func(e *imds.Event) { e.Resources = []string{"VM_0", "VM_1"} })
		b.WaitFor("the leader has drained", 2*time.Second, leader.Drained)
		time.Sleep(2 * time.Second)
		if started(b, id) || member.Drained() {
			t.Fatal("acknowledged before the other VM's worker had handed everything over")
		}
		waits := leader.Log.Find("event not acknowledged yet")
		if want := "worker vm_1-11112222-0 of VM VM_1 is not ready"; len(waits) != 1 || waits[0]["reason"] != want {
			t.Errorf("log = %v, want one line: %s", waits, want)
		}
		b.WaitFor("acknowledged", 8*time.Second, func() bool { return started(b, id) })
		if !member.Drained() || b.Record("stubborn").Status != checkpoint.Open || asked.Load() != 1 {
			t.Errorf("member drained %t, acknowledged %d times, want true, once", member.Drained(), asked.Load())
		}
	})
}

// TestLeaderWaitsForAnUnknownVM: the leader does not acknowledge an event that also
// names a VM without a worker. The event starts at its own time.
func TestLeaderWaitsForAnUnknownVM(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, asLeader)
		b.WaitFor("process", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
		asked := countAcknowledgements(b)
		b.Announce("Reboot", rig.ByUser, rig.In(10*time.Minute), func(e *imds.Event) { e.Resources = []string{"vm_0", "db_0"} })
		time.Sleep(9 * time.Minute)
		if asked.Load() != 0 {
			t.Errorf("acknowledged %d times for a VM that is not ours", asked.Load())
		}
		waits := p.Log.Find("event not acknowledged yet")
		if want := "no worker of VM db_0 has been heard of for 45s"; len(waits) != 1 || waits[0]["reason"] != want {
			t.Errorf("log = %v, want one line: %s", waits, want)
		}
	})
}

// TestDeputy: when the leader of three VMs goes, another VM acknowledges in its place, once
// nothing of the leader's can be lost, and no earlier.
func TestDeputy(t *testing.T) {
	const (
		beat  = 15 * time.Second // how often a heartbeat is written, and a deputy looks
		heard = 45 * time.Second // how long a heartbeat counts
		gone  = heard + renewal.MaxVisibility
	)
	kill := func(_ *rig.Bed, p *rig.Process) { p.KillNoWait() }
	freeze := func(b *rig.Bed, p *rig.Process) { p.Bed.T.Cleanup(p.Link.Hold()) }
	end := func(_ *rig.Bed, p *rig.Process) { p.Stop() }
	evict := func(b *rig.Bed, p *rig.Process) {
		if _, err := b.Metadata.SimulateEviction("vm_0"); err != nil {
			b.T.Fatal(err)
		}
		b.WaitFor("the leader has drained", 20*time.Second, p.Drained)
		time.Sleep(time.Second)
		b.Metadata.RemoveVM("vm_0")
		p.KillNoWait()
	}
	for name, row := range map[string]struct {
		goes     func(*rig.Bed, *rig.Process)
		early    bool          // the leader goes before the event is announced; else when it is ready, while others are saving
		from, to time.Duration // when the event is acknowledged, since the leader went
	}{
		"killed, ready":       {goes: kill, from: heard - beat, to: heard + 2*beat},
		"frozen, ready":       {goes: freeze, from: heard - beat, to: heard + 2*beat},
		"evicted, ready":      {goes: evict, from: heard - beat, to: heard + 2*beat},
		"ended, ready":        {goes: end, from: time.Second, to: 2 * beat},
		"killed while busy":   {goes: kill, early: true, from: gone - beat, to: gone + 2*beat},
		"frozen while busy":   {goes: freeze, early: true, from: gone - beat, to: gone + 2*beat},
		"evicted while busy":  {goes: evict, early: true, from: gone - beat, to: gone + 2*beat},
		"ended before it all": {goes: end, early: true, to: 2 * beat},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				stubborn := rig.NewStubborn()
				defer stubborn.Finish()
				kinds := job.Kinds{"stubborn": stubborn, "echo": rig.Echo}
				start := func(vm, id string) *rig.Process {
					p := b.Start(vm, kinds, asLeader, func(c *worker.Config) { c.Concurrency = 1 })
					b.WaitFor("a worker", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
					if id != "" {
						b.Put(id, "stubborn", "")
						b.WaitFor("some work", time.Minute, func() bool { return len(p.Log.Find("job started")) == 1 })
					}
					return p
				}
				var leader *rig.Process
				if row.early {
					leader = start("vm_0", "lost")
				}
				others := []*rig.Process{start("vm_2", "a"), start("vm_1", "")}
				if !row.early {
					leader = start("vm_0", "")
				}
				posts := countAcknowledgements(b)
				begun := time.Now()
				if row.early {
					row.goes(b, leader)
				}
				id := b.Announce("Reboot", rig.ByUser, rig.In(15*time.Minute), func(e *imds.Event) {
					e.Resources = []string{"vm_0", "vm_1", "vm_2"}
				})
				if !row.early {
					b.WaitFor("the leader is ready", 5*time.Second, leader.Drained)
					time.Sleep(time.Second) // its heartbeat has arrived
					begun = time.Now()
					row.goes(b, leader)
				}
				if others[0].Drained() {
					t.Fatal("the other VM's worker has handed over already, want it to be saving")
				}
				b.WaitFor("acknowledged", 10*time.Minute, func() bool { return started(b, id) })
				if took := time.Since(begun); took < row.from || took > row.to {
					t.Errorf("acknowledged %s after the leader went, want %s to %s", took, row.from, row.to)
				}
				if !others[0].Drained() || !others[1].Drained() || b.Record("a").Status != checkpoint.Open {
					t.Error("acknowledged before all workers had handed over their jobs")
				}
				time.Sleep(time.Minute)
				if n := posts.Load(); n != 1 {
					t.Errorf("acknowledgements = %d, want 1", n)
				}
			})
		})
	}
}

// TestDeputyWaits: while the leader's worker is heard of, no other VM acknowledges, and the
// log of the deputy has one line about it.
func TestDeputyWaits(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		kinds := job.Kinds{"echo": rig.Echo}
		deputy := b.Start("vm_1", kinds, asLeader)
		leader := b.Start("vm_0", kinds) // acknowledges events for its own VM alone
		b.WaitFor("two workers", time.Minute, func() bool { return leader.Position().State == lifecycle.Process })
		posts := countAcknowledgements(b)
		b.Announce("Reboot", rig.ByUser, rig.In(15*time.Minute), func(e *imds.Event) { e.Resources = []string{"vm_0", "vm_1"} })
		time.Sleep(10 * time.Minute)
		if n := posts.Load(); n != 0 || !deputy.Drained() {
			t.Errorf("acknowledgements beside a live leader = %d, deputy drained %t, want 0, true", n, deputy.Drained())
		}
		waits := deputy.Log.Find("event not acknowledged yet")
		if want := "VM vm_0 acknowledges it, while its workers are heard of"; len(waits) != 1 || waits[0]["reason"] != want {
			t.Errorf("log = %v, want one line: %s", waits, want)
		}
	})
}

// TestWorkerGoesWhileItAcknowledges: of several workers on one VM, the one that acknowledges
// is killed or frozen before its request arrives. Another one acknowledges: at once after a
// kill, since the kernel releases the lock, and otherwise after 75 s.
func TestWorkerGoesWhileItAcknowledges(t *testing.T) {
	for name, row := range map[string]struct {
		goes     func(*rig.Process, *vmshare.Dir)
		from, to time.Duration
	}{
		"killed": {func(p *rig.Process, d *vmshare.Dir) { p.KillNoWait(); d.Close() }, 0, 3 * time.Second},
		"frozen": {func(p *rig.Process, _ *vmshare.Dir) { p.Bed.T.Cleanup(p.Link.Hold()) }, 70 * time.Second, 78 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run")
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				var all []*rig.Process
				var folders []*vmshare.Dir
				for _, instance := range []string{"0", "1"} {
					all = append(all, b.Start("vm_0", job.Kinds{"echo": rig.Echo}, sharedVM(b, path, instance),
						func(c *worker.Config) { folders = append(folders, c.Runtime) }))
				}
				b.WaitFor("two workers", time.Minute, func() bool { return all[1].Position().State == lifecycle.Process })
				var posts atomic.Int64
				b.Metadata.OnRequest(func(r imds.Request) imds.Fault {
					if r.Method == http.MethodPost && posts.Add(1) == 1 {
						return imds.Fault{Hang: true}
					}
					return imds.Fault{}
				})
				id := b.Announce("Reboot", rig.ByUser, rig.In(15*time.Minute))
				b.WaitFor("an acknowledgement", 10*time.Second, func() bool { return posts.Load() == 1 })
				time.Sleep(5 * time.Second)
				who := 0
				if len(all[0].Log.Find("event is acknowledged by another worker of this VM")) == 1 {
					who = 1
				}
				begun := time.Now()
				row.goes(all[who], folders[who])
				b.WaitFor("acknowledged", 5*time.Minute, func() bool { return started(b, id) })
				if took := time.Since(begun); took < row.from || took > row.to {
					t.Errorf("acknowledged %s after the worker went, want %s to %s", took, row.from, row.to)
				}
				if len(all[1-who].Log.Find("event acknowledged; it may start at any moment")) != 1 || posts.Load() != 2 {
					t.Errorf("requests = %d, want two, the second from the other worker", posts.Load())
				}
			})
		})
	}
}
