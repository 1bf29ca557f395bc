package evictions

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/events"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// TestPreemptHandsOver tests promises 4 and 5: after a notice work stops within one
// poll, every job is released in time, and another worker continues without repeating
// a step that was reported.
func TestPreemptHandsOver(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 100, Each: 300 * time.Millisecond}
		b.Put("long", "steps", "")
		first := b.Start("vm_0", job.Kinds{"steps": work})
		b.WaitFor("some work", 20*time.Second, func() bool { return work.Done("long") >= 40 })

		id, err := b.Metadata.SimulateEviction("vm_0")
		if err != nil {
			t.Fatal(err)
		}
		announced := time.Now()
		b.WaitFor("shutdown", 2*time.Second, func() bool { return first.Position().State == lifecycle.Shutdown })
		if took := time.Since(announced); took > time.Second+50*time.Millisecond {
			t.Errorf("event visible to work stopped = %s, want at most one poll and 50ms", took)
		}
		b.WaitFor("release", 2*time.Second, func() bool { return first.Position().Facts.Has(lifecycle.WorkReleased) })

		r := b.Record("long")
		if r.Status != checkpoint.Open || r.Interruptions != 1 || r.Failures != 0 || r.ChargedExits != 0 {
			t.Errorf("record after release = %s, %d interruptions, %d failures, %d unclean exits, want open, 1, 0, 0",
				r.Status, r.Interruptions, r.Failures, r.ChargedExits)
		}
		if m := b.Server.Messages(b.Names.Queue); len(m) != 1 || !m[0].Visible {
			t.Errorf("messages after release = %+v, want one that is visible", m)
		}
		b.Metadata.Complete(id)
		first.Kill()

		b.Start("vm_1", job.Kinds{"steps": work})
		b.WaitDone("long", time.Minute)
		if got := work.Repeated("long"); got != 0 {
			t.Errorf("steps repeated after a notice = %d, want 0", got)
		}
		if r := b.Record("long"); r.Generation != 2 || r.Owner != "vm_1-11112222-0" {
			t.Errorf("record = generation %d, owner %s, want 2, the second worker", r.Generation, r.Owner)
		}
	})
}

// TestKillRepeatsAtMostOneInterval tests the other half of promise 4: after a kill at
// most the steps since the last checkpoint are repeated.
func TestKillRepeatsAtMostOneInterval(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const each = 100 * time.Millisecond
		work := &rig.Steps{N: 400, Each: each}
		b.Put("long", "steps", "")
		first := b.Start("vm_0", job.Kinds{"steps": work})
		b.WaitFor("some work", 30*time.Second, func() bool { return work.Done("long") >= 190 })
		first.Link.Cut() // as kill does, but before its handler counts another step
		first.Term()
		lastStep := work.Done("long")

		b.Start("vm_1", job.Kinds{"steps": work})
		b.WaitDone("long", 3*time.Minute)
		bound := int(checkpoint.Shortest/each) + 1
		if got := work.Repeated("long"); got == 0 || got > bound {
			t.Errorf("steps repeated after a kill = %d of %d, want 1 to %d: one interval", got, lastStep, bound)
		}
	})
}

// TestTerminateHandsOver: SIGTERM releases every job within 2 s, and another worker
// continues them without repeating a step.
func TestTerminateHandsOver(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 100, Each: 300 * time.Millisecond}
		for _, id := range []string{"a", "b", "c"} {
			b.Put(id, "steps", "")
		}
		first := b.Start("vm_0", job.Kinds{"steps": work})
		b.WaitFor("some work", 20*time.Second, func() bool { return work.Done("c") >= 10 })
		asked := time.Now()
		first.Stop()
		if took := time.Since(asked); took > 2*time.Second {
			t.Errorf("SIGTERM to exit = %s, want at most 2s", took)
		}
		if got := len(first.Log.Find("job released")); got != 3 {
			t.Errorf("jobs released = %d, want 3", got)
		}
		p, _, err := b.Workers.Read(t.Context(), "vm_0-11112222-0")
		if err != nil || p.State != "stopped" || p.Count != 0 {
			t.Errorf("heartbeat = %+v, %v, want stopped with no jobs", p, err)
		}
		b.Start("vm_1", job.Kinds{"steps": work})
		for _, id := range []string{"a", "b", "c"} {
			b.WaitDone(id, 2*time.Minute)
			if got := work.Repeated(id); got != 0 {
				t.Errorf("job %s: steps repeated = %d, want 0", id, got)
			}
		}
	})
}

// TestFrozenWorkerWritesNothing tests promise 3: a worker that was frozen until another
// one acquired its job can no longer write the job's record.
func TestFrozenWorkerWritesNothing(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 300, Each: 300 * time.Millisecond}
		b.Put("long", "steps", "")
		first := b.Start("vm_0", job.Kinds{"steps": work})
		b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("long").HasState() })
		thaw := first.Link.Hold()
		b.Start("vm_1", job.Kinds{"steps": work})
		b.WaitFor("takeover", time.Minute, func() bool { return b.Record("long").Generation == 2 })
		thaw()
		b.WaitFor("the frozen worker drops its delivery", 10*time.Second, func() bool {
			return len(first.Log.Find("message left alone; another worker may have its job")) == 1
		})
		b.WaitDone("long", 3*time.Minute)
		if r := b.Record("long"); r.Generation != 2 || r.Owner != "vm_1-11112222-0" {
			t.Errorf("record = generation %d by %s, want 2 by the second worker", r.Generation, r.Owner)
		}
		if got := len(first.Log.Find("job committed")); got != 0 {
			t.Errorf("commits by the frozen worker = %d, want 0", got)
		}
	})
}

// TestThawedWorkerTakesNothing: a worker is frozen between its claim of a message and
// its read of the record, for longer than the visibility timeout. When it resumes,
// another worker owns the job and keeps it.
func TestThawedWorkerTakesNothing(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.AddRecorder()
		work := &rig.Steps{N: 200, Each: 300 * time.Millisecond}
		b.Put("long", "steps", "")
		killed := b.Start("vm_9", job.Kinds{"steps": work}, func(c *worker.Config) { c.Metadata = nil })
		b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("long").HasState() })
		killed.Kill()
		work.Forget()
		var thaw atomic.Pointer[func()] // set once it is frozen
		first := b.StartWithLink("vm_0", job.Kinds{"steps": work}, func(k *rig.Link) {
			k.FaultFor = func(_ int, r *http.Request) rig.RequestFault {
				if thaw.Load() != nil || r.Method != http.MethodHead || !strings.HasSuffix(r.URL.Path, "/long") {
					return rig.RequestFault{}
				}
				return rig.RequestFault{Lost: true, OnSend: func() { hold := k.Hold(); thaw.Store(&hold) }}
			}
		}, func(c *worker.Config) { c.Metadata = nil })
		b.WaitFor("the freeze", time.Minute, func() bool { return thaw.Load() != nil })
		b.Start("vm_1", job.Kinds{"steps": work}, func(c *worker.Config) { c.Metadata = nil })
		b.WaitFor("takeover", time.Minute, func() bool { return b.Record("long").Generation == 2 })
		time.Sleep(2 * time.Second)
		(*thaw.Load())()
		b.WaitDone("long", 3*time.Minute)
		if r := b.Record("long"); r.Generation != 2 || r.Owner != "vm_1-0" {
			t.Errorf("record = generation %d by %s, want 2 by the second worker", r.Generation, r.Owner)
		}
		if started, dropped := len(first.Log.Find("job started")),
			len(first.Log.Find("message left alone; another worker may have its job")); started != 0 || dropped != 1 {
			t.Errorf("thawed worker: %d jobs started, %d deliveries dropped, want 0 and 1", started, dropped)
		}
		b.Recorder.Check(t)
	})
}

// TestLateDeliveryRenewsFirst: a worker is frozen after a claim for longer than the
// visibility timeout, and no other worker claims the message. It renews the message
// before it starts the job.
func TestLateDeliveryRenewsFirst(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.AddRecorder()
		if err := b.Queue.Put(t.Context(), queue.Envelope{ID: "a", Kind: "echo", Resume: true}, 0); err != nil {
			t.Fatal(err)
		}
		var thaw atomic.Pointer[func()]
		p := b.StartWithLink("vm_0", job.Kinds{"echo": rig.Echo}, func(k *rig.Link) {
			k.FaultFor = func(_ int, r *http.Request) rig.RequestFault {
				if thaw.Load() != nil || r.Method != http.MethodHead || !strings.HasSuffix(r.URL.Path, "/a") {
					return rig.RequestFault{}
				}
				return rig.RequestFault{Lost: true, OnSend: func() { hold := k.Hold(); thaw.Store(&hold) }}
			}
		}, func(c *worker.Config) { c.Metadata = nil })
		b.WaitFor("the freeze", time.Minute, func() bool { return thaw.Load() != nil })
		time.Sleep(40 * time.Second)
		(*thaw.Load())()
		b.WaitDone("a", 10*time.Second)
		if n := len(p.Log.Find("job started")); n != 1 {
			t.Errorf("job started %d times, want once", n)
		}
	})
}

// TestResumeChecksStorage: a worker that could not work for long, because of an event or of
// an operator, checks storage before it takes jobs again, and tries until it answers. After
// a short interruption, and after a start, there is no second check.
func TestResumeChecksStorage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		away   time.Duration
		checks bool
	}{{"half an hour", 30 * time.Minute, true}, {"seconds", 20 * time.Second, false}} {
		t.Run(tt.name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				var refusing atomic.Bool
				var depths atomic.Int32
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					if c.Operation != storage.OpGetQueueMetadata {
						return storage.Fault{}
					}
					depths.Add(1)
					if refusing.Load() {
						return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch", Message: "no"}}
					}
					return storage.Fault{}
				})
				p := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
				b.WaitFor("process", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
				if n := depths.Load(); n != 1 {
					t.Errorf("queue read %d times until the worker is ready, want once", n)
				}
				id := b.Announce("Preempt", rig.In(tt.away+time.Hour))
				b.WaitFor("shutdown", 5*time.Second, func() bool { return p.Position().State == lifecycle.Shutdown })
				b.Put("a", "echo", "1")
				time.Sleep(tt.away)
				refusing.Store(true)
				b.Metadata.Withdraw(id)
				time.Sleep(time.Minute)
				found := p.Log.Find("storage is not ready; no job is lost, trying again")
				if state := p.Position().State; tt.checks != (state == lifecycle.Resume) || tt.checks != (len(found) > 1) {
					t.Errorf("state a minute after the withdrawal = %s, with %d log lines of storage, want resume and several: %t", state, len(found),
						tt.checks)
				}
				refusing.Store(false)
				b.WaitDone("a", 10*time.Second)
			})
		})
	}
}

// TestResumeIsInterrupted: a worker that waits for storage in Resume heeds the next notice
// and SIGTERM at once.
func TestResumeIsInterrupted(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		b.WaitFor("process", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
		id := b.Announce("Preempt", rig.In(time.Hour))
		time.Sleep(30 * time.Minute)
		b.Server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropRequest: true} })
		b.Metadata.Withdraw(id)
		b.WaitFor("resume", 10*time.Second, func() bool { return p.Position().State == lifecycle.Resume })
		time.Sleep(10 * time.Minute)
		if state := p.Position().State; state != lifecycle.Resume {
			t.Errorf("state while storage does not answer = %s, want resume", state)
		}
		b.Announce("Preempt", rig.In(time.Minute))
		b.WaitFor("shutdown", 2*time.Second, func() bool { return p.Position().State == lifecycle.Shutdown })
		begun := time.Now()
		p.Stop()
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("the worker ended %s after SIGTERM, want at most 10s", took)
		}
	})
}

// TestEventBeforeProcess: a worker that starts after the eviction of its VM was
// announced takes no jobs.
func TestEventBeforeProcess(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Put("a", "echo", "1")
		b.Start("other", job.Kinds{"other": rig.Echo}).Stop() // so that the VM exists
		b.Metadata.AddVM(rig.SpotVM("vm_0"))
		if _, err := b.Metadata.SimulateEviction("vm_0"); err != nil {
			t.Fatal(err)
		}
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		b.WaitFor("shutdown", 5*time.Second, func() bool { return p.Position().State == lifecycle.Shutdown })
		synctest.Wait()
		time.Sleep(5 * time.Second)
		if got := b.Record("a").Status; got == checkpoint.Done {
			t.Errorf("job done by a worker that was being evicted: status %s", got)
		}
	})
}

// TestStubbornHandler: a handler that ignores its context delays the exit by half of
// the drain's budget at most, and its job is released with the last state.
func TestStubbornHandler(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		stubborn := rig.NewStubborn()
		defer stubborn.Finish()
		work := &rig.Steps{N: 100, Each: 300 * time.Millisecond}
		b.Put("stubborn", "stubborn", "")
		b.Put("good", "steps", "")
		p := b.Start("vm_0", job.Kinds{"stubborn": stubborn, "steps": work})
		b.WaitFor("some work", 20*time.Second, func() bool { return work.Done("good") >= 3 })
		asked := time.Now()
		p.Stop()
		if took := time.Since(asked); took > 6*time.Second {
			t.Errorf("SIGTERM to exit with a stubborn handler = %s, want little more than half of the budget", took)
		}
		r := b.Record("stubborn")
		if r.Status != checkpoint.Open || r.StateSize != 4 || r.Failures != 0 {
			t.Errorf("record = %s, %d bytes of state, %d failures, want open with its last report, 0", r.Status, r.StateSize, r.Failures)
		}
	})
}

// TestUncleanExitIsLogged: a worker whose name had an unclean exit in its last run logs
// that and the jobs that were running.
func TestUncleanExitIsLogged(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 200, Each: 300 * time.Millisecond}
		b.Put("long", "steps", "")
		first := b.Start("vm_0", job.Kinds{"steps": work})
		b.WaitFor("a heartbeat with the job", 30*time.Second, func() bool {
			p, ok, err := b.Workers.Read(t.Context(), "vm_0-11112222-0")
			return err == nil && ok && len(p.Jobs) == 1
		})
		first.Kill()
		second := b.Start("vm_0", job.Kinds{"steps": work})
		b.WaitDone("long", 5*time.Minute)
		found := second.Log.Find("last run was killed; its jobs are resumed when their visibility timeouts expire")
		if len(found) != 1 || fmt.Sprint(found[0]["job_ids"]) != "[long]" {
			t.Errorf("log = %v, want one line that names the running job", found)
		}
		if p, _, err := b.Workers.Read(t.Context(), "vm_0-11112222-0"); err != nil || p.Findings.Trouble.Crashes != 1 {
			t.Errorf("crashes in the heartbeat = %d, %v, want 1", p.Findings.Trouble.Crashes, err)
		}
		second.Stop()
		third := b.Start("vm_0", job.Kinds{"steps": work})
		b.WaitFor("process", time.Minute, func() bool { return third.Position().State == lifecycle.Process })
		if found := third.Log.Find("last run was killed; its jobs are resumed when their visibility timeouts expire"); len(found) != 0 {
			t.Errorf("log after a clean exit = %v, want none", found)
		}
	})
}

// TestHeartbeatSaysWhatIsWrong: a silent metadata service is in the heartbeat within seconds and until
// it answers again, and the work that an eviction cost in its drain, from the last report on.
func TestHeartbeatSaysWhatIsWrong(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Put("a", "silent", "")
		p := b.Start("vm_0", job.Kinds{"silent": silent(time.Hour)})
		b.WaitFor("process", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
		beat := func() presence.Presence {
			found, _, err := b.Workers.Read(t.Context(), "vm_0-11112222-0")
			if err != nil {
				t.Error(err)
			}
			return found.Presence
		}
		time.Sleep(17 * time.Second)
		b.Metadata.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Status: http.StatusInternalServerError} })
		b.WaitFor("the blindness", 8*time.Second, func() bool { return beat().Findings.Trouble.Blind > 0 })
		b.Metadata.OnRequest(nil)
		b.WaitFor("its end", 8*time.Second, func() bool { return beat().Findings.Trouble.Blind == 0 })
		time.Sleep(time.Minute)
		b.Announce("Preempt", rig.In(30*time.Second))
		b.WaitFor("the drain", 10*time.Second, func() bool { return !beat().LastDrain.EndedAt.IsZero() })
		if d := beat().LastDrain; d.Lost < time.Minute || d.Lost > 2*time.Minute || d.Released != 1 {
			t.Errorf("drain = %+v, want one job whose work of more than a minute is lost", d)
		}
	})
}

// failName makes a VM's metadata service answer requests for the instance's name with
// that fault.
func failName(answer imds.Fault) func(imds.Request) imds.Fault {
	return func(r imds.Request) imds.Fault {
		if strings.HasPrefix(r.Path, "/metadata/instance") {
			return answer
		}
		return imds.Fault{}
	}
}

// TestEvictionWithoutName: a worker that does not know its VM's name saves every job
// when an eviction is announced, and continues, since the eviction may be of another
// VM. Once it knows the name, it drains.
func TestEvictionWithoutName(t *testing.T) {
	for name, answer := range map[string]imds.Fault{
		"the call fails":    {Status: http.StatusInternalServerError},
		"the name is empty": {Body: []byte(`{"name":"","vmId":"x"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.Metadata.OnRequest(failName(answer))
				work, seen := &rig.Steps{N: 600, Each: time.Second}, &rig.Counter{}
				ids := b.PutSteps(2)
				p := b.Start("vm_0", job.Kinds{"steps": work}, savesSeldom, rig.Observed(seen))
				b.WaitFor("some work", 2*time.Minute, work.AtLeast(ids, 3))
				b.Announce("Reboot", rig.In(time.Hour))
				time.Sleep(3 * time.Second)
				if b.Record(ids[0]).HasState() {
					t.Fatal("a state was saved without an eviction")
				}
				b.Announce("Preempt", rig.In(30*time.Second))
				b.WaitFor("saved", 2*time.Second, func() bool { return b.Record(ids[0]).HasState() && b.Record(ids[1]).HasState() })
				time.Sleep(10 * time.Second)
				if got := seen.Of("unrecognised"); got["unrecognised"] != 1 || p.Position().State != lifecycle.Process {
					t.Errorf("evictions counted = %v, state %s, want 1 and state process: it may be of another VM", got, p.Position().State)
				}
				b.Metadata.OnRequest(nil)
				b.WaitFor("released", 12*time.Second, func() bool { return len(p.Log.Find("drained")) == 1 })
			})
		})
	}
}

// TestRebootWithoutName: a worker that does not know its VM's name saves for every event
// that may stop its VM soon: at once if it is due in seconds, 30 s before if there is
// time, and again after any change until the event is over.
func TestRebootWithoutName(t *testing.T) {
	for notice, savedAfter := range map[time.Duration]time.Duration{
		8 * time.Second: 0, 2 * time.Minute: 90 * time.Second,
	} {
		t.Run(notice.String(), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.Metadata.OnRequest(failName(imds.Fault{Status: http.StatusInternalServerError}))
				work, seen := &rig.Steps{N: 600, Each: time.Second}, &rig.Counter{}
				ids := b.PutSteps(1)
				b.Start("vm_0", job.Kinds{"steps": work}, func(c *worker.Config) {
					c.Observe = seen.Observe
					c.Policy = checkpoint.Policy{EvictionRate: 1e-6, FirstAfter: 5 * time.Minute}
				})
				b.WaitFor("some work", 2*time.Minute, work.AtLeast(ids, 20))
				saved := func() float64 { return b.Record(ids[0]).Fraction }
				before := saved()
				b.Announce("Reboot", rig.In(notice))
				saves := 0
				for range savedAfter / time.Second {
					time.Sleep(time.Second)
					if now := saved(); now != before {
						before, saves = now, saves+1
					}
				}
				if saves > 3 {
					t.Errorf("%d saves in %s long before the event, want those of the usual interval", saves, savedAfter)
				}
				b.WaitFor("a save", 6*time.Second, func() bool { return saved() > before })
				first := saved()
				b.WaitFor("another save", 8*time.Second, func() bool { return saved() > first })
				if got := seen.Of("unrecognised")["unrecognised"]; got != 1 {
					t.Errorf("events counted = %v, want 1", got)
				}
			})
		})
	}
}

// TestEvictionBeforeTheName: an eviction that is announced while the worker's request
// for its VM's name is in flight does not count as unrecognised.
func TestEvictionBeforeTheName(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Metadata.OnRequest(failName(imds.Fault{Delay: 2 * time.Second})) // so that the worker sees the event first
		b.Metadata.AddVM(rig.SpotVM("vm_0"))
		b.Announce("Preempt", rig.In(time.Hour))
		seen := &rig.Counter{}
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, rig.Observed(seen))
		b.WaitFor("the eviction of this VM in the log", 10*time.Second,
			func() bool { return len(p.Log.Find("scheduled event names this VM")) == 1 })
		if got := seen.Of("unrecognised"); got["unrecognised"] != 0 {
			t.Errorf("unrecognised evictions = %v, want none", got)
		}
	})
}

// TestVMName: a VM name in the configuration takes precedence over the metadata
// service's, and serves if that has none.
func TestVMName(t *testing.T) {
	for name, answer := range map[string]imds.Fault{
		"no name":      {Status: http.StatusInternalServerError},
		"another name": {Body: []byte(`{"name":"host","vmId":"99998888-0000"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.Metadata.OnRequest(failName(answer))
				work := &rig.Steps{N: 600, Each: time.Second}
				ids := b.PutSteps(1)
				p := b.Start("vm_0", job.Kinds{"steps": work}, savesSeldom, func(c *worker.Config) { c.VMName = "VM_0" })
				b.WaitFor("some work", time.Minute, work.AtLeast(ids, 1))
				b.Announce("Preempt", rig.In(30*time.Second))
				b.WaitFor("released", 3*time.Second, func() bool { return len(p.Log.Find("drained")) == 1 })
				want := map[string]string{"no name": "VM_0-0", "another name": "VM_0-99998888-0"}[name]
				if p.Name() != want {
					t.Errorf("worker's name = %s, want %s", p.Name(), want)
				}
			})
		})
	}
}

// TestEventIsKept: the log has every field of an event, and the heartbeat keeps the
// event and the result of its drain, also after a restart.
func TestEventIsKept(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 600, Each: time.Second}
		ids := b.PutSteps(2)
		p := b.Start("vm_0", job.Kinds{"steps": work}, savesSeldom, func(c *worker.Config) { c.LogTail = func() string { return "the log" } })
		b.WaitFor("some work", time.Minute, work.AtLeast(ids, 1))
		announced := time.Now()
		id := b.Announce("Terminate", rig.ByUser, rig.In(6*time.Minute), rig.Lasting(90*time.Second), func(e *imds.Event) {
			e.Description = "Host\x1b[2J is\nbeing" + strings.Repeat("é", 500)
		})
		b.WaitFor("drained", 12*time.Second, func() bool { return len(p.Log.Find("drained")) == 1 })
		line := p.Log.Find("scheduled event names this VM")[0]
		text, _ := line["description"].(string)
		if line["event_source"] != "User" || line["duration"] != "1m30s" || !strings.HasPrefix(text, "Host") ||
			strings.ContainsAny(text, "\x1b\n") || utf8.RuneCountInString(text) > events.MaxEventText {
			t.Errorf("the log has %v, want source, duration and one printable line of bounded length", line)
		}
		stores, owner := b.Connect(b.Transport("reader")), p.Name()
		read := func() presence.Presence {
			last, ok, err := stores.Workers.Read(t.Context(), owner)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			return last.Presence
		}
		b.WaitFor("the heartbeat", time.Second, func() bool { return !read().LastDrain.EndedAt.IsZero() })
		last := read()
		if e := last.LastEvent; e.ID != id || e.Type != "Terminate" || e.Source != "User" || e.Duration != "1m30s" || e.Action != "drain" ||
			!strings.HasPrefix(e.Description, "Host\x1b[2J is\nbeingé") || e.SeenAt.Sub(announced) > 2*time.Second {
			t.Errorf("event in the heartbeat = %+v", e)
		}
		if d := last.LastDrain; d.Reason != string(job.Evicted) || d.Jobs != 2 || d.Released != 2 || d.Left != 0 || d.Budget != 10*time.Second {
			t.Errorf("drain in the heartbeat = %+v, want two jobs released within 10 s", d)
		}
		b.Metadata.Complete(id)
		p.Stop()
		b.Start("vm_0", job.Kinds{"steps": work}, savesSeldom)
		b.WaitFor("a new heartbeat", time.Minute, func() bool { return read().StartedAt.After(last.StartedAt) })
		if last.LogEnd != "the log" {
			t.Errorf("log in the heartbeat = %q, want it after the drain", last.LogEnd)
		}
		if again := read(); again.LogEnd != "" || again.LastEvent.ID != id || again.LastDrain != last.LastDrain {
			t.Errorf("heartbeat after a restart = %+v, %+v, want what was kept", again.LastEvent, again.LastDrain)
		}
	})
}
