package evictions

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/events"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/worker/intake"
	"github.com/spotworker/spotworker/job"
)

// savesSeldom sets a checkpoint interval of five minutes, so that an earlier save has
// another reason.
func savesSeldom(c *worker.Config) {
	c.Policy = checkpoint.Policy{Interval: 5 * time.Minute, FirstAfter: 5 * time.Minute, TouchEvery: 5 * time.Minute}
}

// started reports whether the event has started, as it does when acknowledged.
func started(b *rig.Bed, id string) bool {
	e, ok := b.Metadata.Event(id)
	return ok && e.Status == "Started"
}

// statesSaved returns how many of the jobs' records have a state.
func statesSaved(b *rig.Bed, ids []string) (n int) {
	for _, id := range ids {
		if b.Record(id).HasState() {
			n++
		}
	}
	return n
}

// TestShortFreeze: a freeze of a few seconds is acknowledged, and no job is saved or
// interrupted for it.
func TestShortFreeze(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 100, Each: time.Second}
		ids := b.PutSteps(2)
		p := b.Start("vm_0", job.Kinds{"steps": work}, savesSeldom)
		b.WaitFor("some work", 20*time.Second, work.AtLeast(ids, 3))
		id := b.Announce("Freeze", rig.Lasting(7*time.Second))
		b.WaitFor("acknowledged", 2*time.Second, func() bool { return started(b, id) })
		if got := statesSaved(b, ids); got != 0 {
			t.Errorf("jobs saved for a short freeze = %d, want 0", got)
		}
		b.WaitDone(ids[0], 3*time.Minute)
		if r := b.Record(ids[0]); r.Interruptions != 0 || r.Generation != 1 {
			t.Errorf("record = %d interruptions, generation %d, want 0, 1", r.Interruptions, r.Generation)
		}
		if s := p.Position().State; s != lifecycle.Process {
			t.Errorf("state = %s, want process", s)
		}
	})
}

// TestLongFreeze: every job is saved once, a bounded number of them at a time. The
// event is acknowledged when all are saved, and no job is interrupted.
func TestLongFreeze(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const jobs = 200
		work := &rig.Steps{N: 90, Each: time.Second}
		ids := b.PutSteps(jobs)
		p := b.Start("vm_0", job.Kinds{"steps": work}, savesSeldom, func(c *worker.Config) { c.Concurrency = jobs })
		b.WaitFor("some work", time.Minute, work.AtLeast(ids, 3))
		if got := statesSaved(b, ids); got != 0 {
			t.Fatalf("jobs saved before the event = %d, want 0", got)
		}
		var mu sync.Mutex
		saves, now, most := 0, 0, 0
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutBlob && c.Container == b.Names.Records {
				mu.Lock()
				saves, now = saves+1, now+1
				most = max(most, now)
				mu.Unlock()
				time.Sleep(20 * time.Millisecond)
				mu.Lock()
				now--
				mu.Unlock()
			}
			return storage.Fault{}
		})
		var savedAtAck atomic.Int64
		b.OnAcknowledge(func() { savedAtAck.Store(int64(statesSaved(b, ids))) })
		id := b.Announce("Freeze")
		b.WaitFor("acknowledged", 3*time.Second, func() bool { return started(b, id) })
		if got := savedAtAck.Load(); got != jobs {
			t.Errorf("jobs saved when the freeze was acknowledged = %d, want all %d", got, jobs)
		}
		mu.Lock()
		if saves != jobs {
			t.Errorf("saves = %d, want one for each of %d jobs", saves, jobs)
		}
		if limit := drain.Parallel; most > limit || most < limit/4 {
			t.Errorf("saves at once = %d, want up to %d", most, limit)
		}
		mu.Unlock()
		if s := p.Position().State; s != lifecycle.Process || b.Record(ids[0]).Status != checkpoint.Running {
			t.Errorf("state = %s, record %s, want process, running", s, b.Record(ids[0]).Status)
		}
		// The start of the same event makes the worker save a second time.
		b.WaitFor("saved again when it starts", 3*time.Second, func() bool {
			return len(p.Log.Find("running jobs were asked to save")) == 2
		})
		for _, line := range p.Log.Find("running jobs were asked to save") {
			if line["jobs"] != float64(jobs) || line["not_saved"] != 0.0 {
				t.Errorf("log = %v, want %d jobs, all saved", line, jobs)
			}
		}
	})
}

// TestFreezeThatCannotBeSavedFor: a freeze is not acknowledged while jobs cannot be
// saved.
func TestFreezeThatCannotBeSavedFor(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 1000, Each: time.Second}
		ids := b.PutSteps(3)
		p := b.Start("vm_0", job.Kinds{"steps": work}, savesSeldom)
		b.WaitFor("some work", 30*time.Second, work.AtLeast(ids, 3))
		b.Server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropRequest: true} })
		id := b.Announce("Freeze")
		b.WaitFor("the saves fail", 2*time.Minute, func() bool { return len(p.Log.Find("running jobs were asked to save")) == 1 })
		time.Sleep(time.Minute)
		if started(b, id) {
			t.Error("a freeze was acknowledged although no job could be saved")
		}
	})
}

// TestUnknownEventAndAdvice: for an event of an unknown type, and for a prediction of an
// eviction, jobs are saved and continue. In the latter case the worker buffers no
// messages.
func TestUnknownEventAndAdvice(t *testing.T) {
	const slots = 2
	for kind, advice := range map[string]bool{"Hibernate": false, "SpotRebalanceRecommendation": true} {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			b.Metadata = imds.New(imds.Options{PreviewEvents: true})
			work := &rig.Steps{N: 60, Each: time.Second}
			b.Put("job-0", "steps", "")
			b.Start("vm_0", job.Kinds{"steps": work, "echo": rig.Echo}, savesSeldom, func(c *worker.Config) { c.Concurrency = slots })
			b.WaitFor("some work", 20*time.Second, work.AtLeast([]string{"job-0"}, 3))
			id := b.Announce(kind, func(e *imds.Event) {
				e.NotBefore = time.Now().Add(time.Hour)
				if advice {
					e.Status = "Advisory"
				}
			})
			b.WaitFor("saved", 2*time.Second, func() bool { return b.Record("job-0").HasState() })
			for i := range 20 { // short jobs, which are buffered otherwise
				b.Put(fmt.Sprint("short-", i), "echo", "1")
			}
			var mu sync.Mutex
			claimed := 0 // the most at once
			b.Server.OnCall(func(c storage.Call) storage.Fault {
				mu.Lock()
				defer mu.Unlock()
				if c.Operation == storage.OpDeleteMessage {
					claimed = max(claimed, b.Hidden())
				}
				return storage.Fault{}
			})
			b.WaitDone("short-19", time.Minute)
			b.WaitDone("job-0", 2*time.Minute)
			if started(b, id) {
				t.Errorf("%s was acknowledged", kind)
			}
			mu.Lock()
			if buffered := claimed > slots; buffered == advice {
				t.Errorf("%s: %d messages claimed at once with %d slots, want more only without advice", kind, claimed, slots)
			}
			mu.Unlock()
			if r := b.Record("job-0"); r.Interruptions != 0 {
				t.Errorf("%s: interruptions = %d, want 0", kind, r.Interruptions)
			}
		})
	}
}

// TestRebootByAPerson: a reboot, redeployment or deletion that a user asked for drains
// the worker at once, and is acknowledged only after the drain.
func TestRebootByAPerson(t *testing.T) {
	for _, kind := range []string{"Reboot", "Redeploy", "Terminate"} {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			work := &rig.Steps{N: 100, Each: 300 * time.Millisecond}
			ids := b.PutSteps(4)
			p := b.Start("vm_0", job.Kinds{"steps": work})
			b.WaitFor("some work", 20*time.Second, work.AtLeast(ids, 3))
			var released atomic.Int64
			b.OnAcknowledge(func() {
				released.Store(int64(len(p.Log.Find("job released"))))
				if b.Hidden() > 0 || !p.Position().Facts.Has(lifecycle.WorkReleased) {
					t.Errorf("%s acknowledged before every job was released", kind)
				}
			})
			announced := time.Now()
			id := b.Announce(kind, rig.ByUser)
			b.WaitFor("acknowledged", 5*time.Second, func() bool { return started(b, id) })
			if took := time.Since(announced); took > 2*time.Second || released.Load() != 4 {
				t.Errorf("%s: acknowledged after %s with %d jobs released, want within 2s, 4", kind, took, released.Load())
			}
			b.WaitFor("seen as started", 3*time.Second, func() bool { return len(p.Log.Find("scheduled event names this VM")) == 2 })
			b.Put("late", "steps", "")
			time.Sleep(5 * time.Second)
			if got := b.Record("late").Status; got != "" {
				t.Errorf("%s: job taken before the event ended: status %s", kind, got)
			}
			b.Metadata.Complete(id)
			b.WaitDone("late", 5*time.Minute)
			for _, id := range ids {
				b.WaitDone(id, time.Minute)
				if got := work.Repeated(id); got != 0 {
					t.Errorf("%s: steps of %s repeated = %d, want 0", kind, id, got)
				}
			}
		})
	}
}

// TestHardwareFailure: an event that has started drains the worker within a second, and
// is not acknowledged.
func TestHardwareFailure(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 100, Each: 300 * time.Millisecond}
		ids := b.PutSteps(4)
		p := b.Start("vm_0", job.Kinds{"steps": work})
		b.WaitFor("some work", 20*time.Second, work.AtLeast(ids, 3))
		b.OnAcknowledge(func() { t.Error("a started event was acknowledged") })
		b.Announce("Reboot", func(e *imds.Event) { e.Status = "Started" })
		b.WaitFor("drained", 2*time.Second, func() bool { return len(p.Log.Find("drained")) == 1 })
		if d := p.Log.Find("drained")[0]; d["budget"] != float64(time.Second) || len(p.Log.Find("job released")) != 4 {
			t.Errorf("drained = %v, want 4 jobs released within a budget of 1s", d)
		}
		time.Sleep(10 * time.Second)
	})
}

// TestWhoAcknowledges: an event that also names other VMs is not acknowledged. A
// refused acknowledgement is logged and has no other effect.
func TestWhoAcknowledges(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*worker.Config)
		event  func(*imds.Event)
		fault  imds.Fault
		sent   bool // whether the worker sends an acknowledgement
		starts bool // whether the event starts at once
	}{
		{"alone", func(*worker.Config) {}, func(*imds.Event) {}, imds.Fault{}, true, true},
		{"alone, in another case and twice", func(*worker.Config) {}, func(e *imds.Event) { e.Resources = []string{"VM_0", "vm_0"} },
			imds.Fault{}, true, true},
		{"with another VM", func(*worker.Config) {}, func(e *imds.Event) { e.Resources = []string{"vm_0", "vm_1"} }, imds.Fault{}, false, false},
		{"never", func(c *worker.Config) { c.Acknowledge = events.AcknowledgeNever }, func(*imds.Event) {}, imds.Fault{}, false, false},
		{"refused", func(*worker.Config) {}, func(*imds.Event) {}, imds.Fault{Status: 400}, true, false},
		{"no answer", func(*worker.Config) {}, func(*imds.Event) {}, imds.Fault{Cut: true}, true, false},
	} {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, tt.change)
			b.WaitFor("process", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
			var posts atomic.Int64
			b.Metadata.OnRequest(func(r imds.Request) imds.Fault {
				if r.Method != http.MethodPost {
					return imds.Fault{}
				}
				posts.Add(1)
				return tt.fault
			})
			id := b.Announce("Reboot", rig.ByUser, tt.event)
			time.Sleep(time.Minute)
			if got := posts.Load() > 0; got != tt.sent || posts.Load() > 8 {
				t.Errorf("%s: acknowledgements sent = %d, want some %t, at most 8", tt.name, posts.Load(), tt.sent)
			}
			if got := started(b, id); got != tt.starts {
				t.Errorf("%s: started = %t, want %t", tt.name, got, tt.starts)
			}
			if got := len(p.Log.Find("event not acknowledged; it starts at its own time")) == 1; got != (tt.sent && !tt.starts) {
				t.Errorf("%s: refusal logged once = %t, want %t", tt.name, got, tt.sent && !tt.starts)
			}
			if s := p.Position().State; s != lifecycle.Shutdown {
				t.Errorf("%s: state = %s, want shutdown until the event is over", tt.name, s)
			}
			if busiest := p.Guest.Stats().BusiestSecond; busiest > 4 {
				t.Errorf("%s: %d metadata requests in one second, want at most 4", tt.name, busiest)
			}
			b.Metadata.Complete(id)
			b.Put("a", "echo", "1")
			b.WaitDone("a", time.Minute)
		})
	}
}

// silent is a handler that never reports what fraction of its job is done.
func silent(takes time.Duration) job.Handler {
	return job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		j.Report(job.Progress{State: []byte("state")})
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(takes):
			return nil, nil
		}
	})
}

// TestRebootInAQuarterHour: with a notice of 15 minutes claiming continues until five
// minutes before the event. Then jobs that can finish in time do, the others are
// released, and the event is acknowledged when no job is left.
func TestRebootInAQuarterHour(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		quick := &rig.Steps{N: 120, Each: time.Second}     // 2 min: finishes in time
		slow := &rig.Steps{N: 120, Each: 10 * time.Second} // 20 min: does not
		kinds := job.Kinds{"quick": quick, "slow": slow, "echo": rig.Echo, "silent": silent(time.Hour)}
		b.Put("slow", "slow", "")
		b.Put("silent", "silent", "")
		p := b.Start("vm_0", kinds)
		b.WaitFor("some work", time.Minute, func() bool { return slow.Done("slow") >= 2 })

		announced := time.Now()
		id := b.Announce("Reboot")
		b.OnAcknowledge(func() {
			if b.Hidden() > 0 || !p.Position().Facts.Has(lifecycle.WorkReleased) {
				t.Error("acknowledged before every job was released")
			}
		})
		time.Sleep(9 * time.Minute)
		b.Put("early", "echo", "1")
		b.WaitDone("early", 10*time.Second)
		b.Put("quick", "quick", "")
		time.Sleep(time.Until(announced.Add(10*time.Minute + 2*time.Second)))
		synctest.Wait()

		if r := b.Record("slow"); r.Status != checkpoint.Open || r.Interruptions != 1 || !r.HasState() {
			t.Errorf("slow job 5 min before = %s, %d interruptions, state %t, want released with its state", r.Status, r.Interruptions, r.HasState())
		}
		if r := b.Record("silent"); r.Status != checkpoint.Open || r.Failures != 0 {
			t.Errorf("silent job 5 min before = %s, %d failures, want released", r.Status, r.Failures)
		}
		if r := b.Record("quick"); r.Status != checkpoint.Running {
			t.Errorf("quick job 5 min before = %s, want still running", r.Status)
		}
		b.Put("late", "echo", "1")
		b.WaitDone("quick", 3*time.Minute)
		b.WaitFor("acknowledged", 3*time.Second, func() bool { return started(b, id) })
		if r := b.Record("quick"); r.Interruptions != 0 || quick.Repeated("quick") != 0 {
			t.Errorf("quick job = %d interruptions, want 0", r.Interruptions)
		}
		time.Sleep(time.Minute)
		if got := b.Record("late").Status; got != "" {
			t.Errorf("job taken after claiming ended: status %s", got)
		}
		b.Metadata.Complete(id)
		b.WaitDone("late", time.Minute)
		b.WaitDone("slow", time.Hour)
		if got := slow.Repeated("slow"); got != 0 {
			t.Errorf("steps repeated = %d, want 0", got)
		}
	})
}

// TestEstimateThatFails: a job that was expected to finish in time and does not is
// released before the event. The drain starts at least 30 s before.
func TestEstimateThatFails(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		slowing := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			for i := 1; ctx.Err() == nil; i++ { // reaches 90 % after 90 s and stays there
				j.Report(job.Progress{State: []byte{byte(i)}, Fraction: min(float64(i)/100, 0.9)})
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
			return nil, context.Cause(ctx)
		})
		announced := time.Now()
		id := b.Announce("Redeploy", rig.In(6*time.Minute))
		b.Put("slowing", "slowing", "")
		p := b.Start("vm_0", job.Kinds{"slowing": slowing})
		b.WaitFor("claiming ended", 2*time.Minute, func() bool {
			return len(p.Log.Find("claiming ended; jobs that will not be done in time are handed over")) == 1
		})
		if r := b.Record("slowing"); r.Status != checkpoint.Running {
			t.Errorf("job that is expected to finish in time = %s, want running", r.Status)
		}
		b.WaitFor("released", 5*time.Minute, func() bool { return b.Record("slowing").Status == checkpoint.Open })
		if left := time.Until(announced.Add(6 * time.Minute)); left < 25*time.Second {
			t.Errorf("released %s before the event, want at least about 30s", left)
		}
		b.WaitFor("acknowledged", 3*time.Second, func() bool { return started(b, id) })
	})
}

// TestNoticeWithdrawn: when an event is withdrawn at any time before its start, the
// worker takes jobs again without a restart.
func TestNoticeWithdrawn(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration // of a notice of 15 min
		state lifecycle.State
		open  bool // whether jobs are taken just before the withdrawal
	}{
		{"while claiming continues", 5 * time.Minute, lifecycle.Process, true},
		{"while jobs finish", 11 * time.Minute, lifecycle.Process, false},
		{"after the drain", 14*time.Minute + 50*time.Second, lifecycle.Shutdown, false},
	} {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			work := &rig.Steps{N: 14 * 60, Each: time.Second}
			b.Put("long", "steps", "")
			// An event that also names another VM is not acknowledged, so it can be withdrawn.
			id := b.Announce("Reboot", rig.In(15*time.Minute), func(e *imds.Event) { e.Resources = []string{"vm_0", "vm_1"} })
			if tt.state == lifecycle.Shutdown {
				work.N = 20 * 60
			}
			p := b.Start("vm_0", job.Kinds{"steps": work, "echo": rig.Echo})
			time.Sleep(tt.after - 3*time.Second)
			b.Put("a", "echo", "1")
			time.Sleep(intake.LongestPoll + 2*time.Second) // the worker polls an empty queue this seldom
			if s := p.Position().State; s != tt.state {
				t.Errorf("%s: state = %s, want %s", tt.name, s, tt.state)
			}
			if got := b.Record("a").Status == checkpoint.Done; got != tt.open {
				t.Errorf("%s: job taken = %t, want %t", tt.name, got, tt.open)
			}
			if !b.Metadata.Withdraw(id) {
				t.Fatalf("%s: the event had started", tt.name)
			}
			b.WaitDone("a", 20*time.Second)
			b.WaitDone("long", 2*time.Hour)
			interruptions := 0
			if tt.state == lifecycle.Shutdown {
				interruptions = 1
			}
			if r := b.Record("long"); r.Interruptions != interruptions || work.Repeated("long") != 0 {
				t.Errorf("%s: %d interruptions, %d steps repeated, want %d, 0", tt.name, r.Interruptions, work.Repeated("long"), interruptions)
			}
		})
	}
}

// TestEventPostponed: when an event is moved to a later time, the drain ends and the
// worker takes jobs again.
func TestEventPostponed(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		both := func(e *imds.Event) { e.ID, e.Resources = "E", []string{"vm_0", "vm_1"} }
		b.Announce("Redeploy", rig.In(3*time.Minute), both)
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		b.WaitFor("drained", 5*time.Second, func() bool { return p.Position().Facts.Has(lifecycle.WorkReleased) })
		b.Metadata.Withdraw("E")
		b.Announce("Redeploy", rig.In(time.Hour), both) // within one poll, so that the worker sees one event with a new time
		b.Put("a", "echo", "1")
		b.WaitDone("a", 20*time.Second)
	})
}

// TestPreemptDuringANotice: an eviction drains the worker at once although another
// event is announced for later. When the eviction is withdrawn, the other event still
// applies.
func TestPreemptDuringANotice(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Minute, 11 * time.Minute} {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			work := &rig.Steps{N: 13 * 60, Each: time.Second}
			b.Put("long", "steps", "")
			reboot := b.Announce("Reboot", rig.In(15*time.Minute))
			p := b.Start("vm_0", job.Kinds{"steps": work})
			time.Sleep(after)
			if r := b.Record("long"); r.Status != checkpoint.Running {
				t.Fatalf("after %s: job = %s, want running", after, r.Status)
			}
			id, err := b.Metadata.SimulateEviction("vm_0")
			if err != nil {
				t.Fatal(err)
			}
			evicted := time.Now()
			b.WaitFor("released", 3*time.Second, func() bool { return b.Record("long").Status == checkpoint.Open })
			if took := time.Since(evicted); took > 1500*time.Millisecond {
				t.Errorf("after %s: eviction to release = %s, want little more than one poll", after, took)
			}
			b.WaitFor("the reboot acknowledged after the drain", 3*time.Second, func() bool { return started(b, reboot) })
			if !b.Metadata.Withdraw(id) {
				t.Fatalf("after %s: the eviction had started", after)
			}
			b.Put("short", "steps", "")
			time.Sleep(10 * time.Second)
			if s := p.Position().State; s != lifecycle.Shutdown {
				t.Errorf("after %s: state = %s, want shutdown until the reboot is over", after, s)
			}
			b.Metadata.Complete(reboot)
			b.WaitDone("long", time.Hour)
			if got := work.Repeated("long"); got != 0 {
				t.Errorf("after %s: steps repeated = %d, want 0", after, got)
			}
		})
	}
}

// TestAlmostDoneForever: a job that reports a fraction of 1 and does not finish is
// released 30 s before the event.
func TestAlmostDoneForever(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		almost := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: []byte("all of it"), Fraction: 1})
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		gone := time.Now().Add(6 * time.Minute)
		b.Put("almost", "almost", "")
		b.Announce("Terminate", rig.In(6*time.Minute))
		b.Start("vm_0", job.Kinds{"almost": almost})
		b.WaitFor("released", 6*time.Minute, func() bool { return b.Record("almost").Status == checkpoint.Open })
		if left := time.Until(gone); left < 25*time.Second || left > 31*time.Second {
			t.Errorf("released %s before the event, want about 30s", left)
		}
	})
}

// TestNoWorkAfterAcknowledgement: no job is taken after an event was acknowledged, even
// if the service has not started it yet.
func TestNoWorkAfterAcknowledgement(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		b.WaitFor("process", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
		b.Metadata.OnRequest(func(r imds.Request) imds.Fault {
			if r.Method == http.MethodPost {
				return imds.Fault{Status: http.StatusOK, Body: []byte{}} // accepted, but not started yet
			}
			return imds.Fault{}
		})
		later := b.Announce("Redeploy", rig.In(72*time.Hour))
		restart := b.Announce("Reboot", rig.ByUser)
		b.WaitFor("both acknowledged", 5*time.Second, func() bool {
			return len(p.Log.Find("event acknowledged; it may start at any moment")) == 2
		})
		b.Metadata.Complete(restart)
		b.Put("a", "echo", "1")
		time.Sleep(10 * time.Second)
		if s, got := p.Position().State, b.Record("a").Status; s != lifecycle.Shutdown || got != "" {
			t.Errorf("state = %s, job %q, want shutdown until the acknowledged event is over, job untouched", s, got)
		}
		b.Metadata.Complete(later)
		b.WaitDone("a", 20*time.Second)
	})
}
