package worker

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/events"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/job"
)

// savesSeldom sets a checkpoint interval of five minutes, so that an earlier save has
// another reason.
func savesSeldom(c *Config) {
	c.Policy = checkpoint.Policy{Interval: 5 * time.Minute, FirstAfter: 5 * time.Minute, TouchEvery: 5 * time.Minute}
}

// announce schedules an event for vm_0 and returns its id.
func (b *testbed) announce(kind string, change ...func(*imds.Event)) string {
	e := imds.Event{Type: kind, Resources: []string{"vm_0"}, Duration: -time.Second}
	for _, f := range change {
		f(&e)
	}
	return b.metadata.Schedule(e)
}

func in(d time.Duration) func(*imds.Event) {
	return func(e *imds.Event) { e.NotBefore = time.Now().Add(d) }
}

func lasting(d time.Duration) func(*imds.Event) { return func(e *imds.Event) { e.Duration = d } }

func byUser(e *imds.Event) { e.Source = "User" }

// started reports whether the event has started, as it does when acknowledged.
func (b *testbed) started(id string) bool {
	e, ok := b.metadata.Event(id)
	return ok && e.Status == "Started"
}

// onAcknowledge calls f for every acknowledgement before the service handles it.
func (b *testbed) onAcknowledge(f func()) {
	b.metadata.OnRequest(func(r imds.Request) imds.Fault {
		if r.Method == http.MethodPost {
			f()
		}
		return imds.Fault{}
	})
}

// putSteps enqueues n jobs of the kind steps: job-0, job-1 and so on.
func (b *testbed) putSteps(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("job-%d", i))
		b.put(ids[i], "steps", "")
	}
	return ids
}

// statesSaved returns how many of the jobs' records have a state.
func (b *testbed) statesSaved(ids []string) (n int) {
	for _, id := range ids {
		if b.record(id).HasState() {
			n++
		}
	}
	return n
}

// atLeast returns a condition for waitFor: every job has done n steps.
func (s *steps) atLeast(ids []string, n int) func() bool {
	return func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return s.done(id) < n })
	}
}

// TestShortFreeze: a freeze of a few seconds is acknowledged, and no job is saved or
// interrupted for it.
func TestShortFreeze(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		work := &steps{n: 100, each: time.Second}
		ids := b.putSteps(2)
		p := b.start("vm_0", job.Kinds{"steps": work}, savesSeldom)
		b.waitFor("some work", 20*time.Second, work.atLeast(ids, 3))
		id := b.announce("Freeze", lasting(7*time.Second))
		b.waitFor("acknowledged", 2*time.Second, func() bool { return b.started(id) })
		if got := b.statesSaved(ids); got != 0 {
			t.Errorf("jobs saved for a short freeze = %d, want 0", got)
		}
		b.waitDone(ids[0], 3*time.Minute)
		if r := b.record(ids[0]); r.Interruptions != 0 || r.Generation != 1 {
			t.Errorf("record = %d interruptions, generation %d, want 0, 1", r.Interruptions, r.Generation)
		}
		if s := p.machine.State(); s != lifecycle.Process {
			t.Errorf("state = %s, want process", s)
		}
	})
}

// TestLongFreeze: every job is saved once, a bounded number of them at a time. The
// event is acknowledged when all are saved, and no job is interrupted.
func TestLongFreeze(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		const jobs = 200
		work := &steps{n: 90, each: time.Second}
		ids := b.putSteps(jobs)
		p := b.start("vm_0", job.Kinds{"steps": work}, savesSeldom, func(c *Config) { c.Concurrency = jobs })
		b.waitFor("some work", time.Minute, work.atLeast(ids, 3))
		if got := b.statesSaved(ids); got != 0 {
			t.Fatalf("jobs saved before the event = %d, want 0", got)
		}
		var mu sync.Mutex
		saves, now, most := 0, 0, 0
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutBlob && c.Container == b.names.Records {
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
		b.onAcknowledge(func() { savedAtAck.Store(int64(b.statesSaved(ids))) })
		id := b.announce("Freeze")
		b.waitFor("acknowledged", 3*time.Second, func() bool { return b.started(id) })
		if got := savedAtAck.Load(); got != jobs {
			t.Errorf("jobs saved when the freeze was acknowledged = %d, want all %d", got, jobs)
		}
		mu.Lock()
		if saves != jobs {
			t.Errorf("saves = %d, want one for each of %d jobs", saves, jobs)
		}
		if limit := drain.Parallel(20*time.Millisecond, runtime.GOMAXPROCS(0)); most > limit || most < drain.LeastParallel/2 {
			t.Errorf("saves at once = %d, want up to %d", most, limit)
		}
		mu.Unlock()
		if s := p.machine.State(); s != lifecycle.Process || b.record(ids[0]).Status != checkpoint.Running {
			t.Errorf("state = %s, record %s, want process, running", s, b.record(ids[0]).Status)
		}
		// The start of the same event makes the worker save a second time.
		b.waitFor("saved again when it starts", 3*time.Second, func() bool {
			return len(p.log.find("running jobs were asked to save")) == 2
		})
		for _, line := range p.log.find("running jobs were asked to save") {
			if line["jobs"] != float64(jobs) || line["not_saved"] != 0.0 {
				t.Errorf("log = %v, want %d jobs, all saved", line, jobs)
			}
		}
	})
}

// TestFreezeThatCannotBeSavedFor: a freeze is not acknowledged while jobs cannot be
// saved.
func TestFreezeThatCannotBeSavedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		work := &steps{n: 1000, each: time.Second}
		ids := b.putSteps(3)
		p := b.start("vm_0", job.Kinds{"steps": work}, savesSeldom)
		b.waitFor("some work", 30*time.Second, work.atLeast(ids, 3))
		b.server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropRequest: true} })
		id := b.announce("Freeze")
		b.waitFor("the saves fail", 2*time.Minute, func() bool { return len(p.log.find("running jobs were asked to save")) == 1 })
		time.Sleep(time.Minute)
		if b.started(id) {
			t.Error("a freeze was acknowledged although no job could be saved")
		}
	})
}

// TestUnknownEventAndAdvice: for an event of an unknown type, and for one that says an
// eviction is likely, jobs are saved and continue. In the latter case the worker buffers
// no messages.
func TestUnknownEventAndAdvice(t *testing.T) {
	const slots = 2
	for kind, advice := range map[string]bool{"Hibernate": false, "SpotRebalanceRecommendation": true} {
		inBubble(t, func(t *testing.T, b *testbed) {
			b.metadata = imds.New(imds.Options{PreviewEvents: true})
			work := &steps{n: 60, each: time.Second}
			b.put("job-0", "steps", "")
			b.start("vm_0", job.Kinds{"steps": work, "echo": echo}, savesSeldom, func(c *Config) { c.Concurrency = slots })
			b.waitFor("some work", 20*time.Second, work.atLeast([]string{"job-0"}, 3))
			id := b.announce(kind, func(e *imds.Event) {
				e.NotBefore = time.Now().Add(time.Hour)
				if advice {
					e.Status = "Advisory"
				}
			})
			b.waitFor("saved", 2*time.Second, func() bool { return b.record("job-0").HasState() })
			for i := range 20 { // short jobs, which are buffered otherwise
				b.put(fmt.Sprint("short-", i), "echo", "1")
			}
			var mu sync.Mutex
			claimed := 0 // the most at once
			b.server.OnCall(func(c storage.Call) storage.Fault {
				mu.Lock()
				defer mu.Unlock()
				if c.Operation == storage.OpDeleteMessage {
					claimed = max(claimed, b.hidden())
				}
				return storage.Fault{}
			})
			b.waitDone("short-19", time.Minute)
			b.waitDone("job-0", 2*time.Minute)
			if b.started(id) {
				t.Errorf("%s was acknowledged", kind)
			}
			mu.Lock()
			if buffered := claimed > slots; buffered == advice {
				t.Errorf("%s: %d messages claimed at once with %d slots, want more only without advice", kind, claimed, slots)
			}
			mu.Unlock()
			if r := b.record("job-0"); r.Interruptions != 0 {
				t.Errorf("%s: interruptions = %d, want 0", kind, r.Interruptions)
			}
		})
	}
}

// hidden returns how many messages are claimed.
func (b *testbed) hidden() (n int) {
	for _, m := range b.server.Messages(b.names.Queue) {
		if !m.Visible {
			n++
		}
	}
	return n
}

// TestRebootByAPerson: a reboot, redeployment or deletion that a user asked for drains
// the worker at once, and is acknowledged only after the drain.
func TestRebootByAPerson(t *testing.T) {
	for _, kind := range []string{"Reboot", "Redeploy", "Terminate"} {
		inBubble(t, func(t *testing.T, b *testbed) {
			work := &steps{n: 100, each: 300 * time.Millisecond}
			ids := b.putSteps(4)
			p := b.start("vm_0", job.Kinds{"steps": work})
			b.waitFor("some work", 20*time.Second, work.atLeast(ids, 3))
			var released atomic.Int64
			b.onAcknowledge(func() {
				released.Store(int64(len(p.log.find("job released"))))
				if b.hidden() > 0 || !p.machine.Position().Facts.Has(lifecycle.WorkReleased) {
					t.Errorf("%s acknowledged before every job was released", kind)
				}
			})
			announced := time.Now()
			id := b.announce(kind, byUser)
			b.waitFor("acknowledged", 5*time.Second, func() bool { return b.started(id) })
			if took := time.Since(announced); took > 2*time.Second || released.Load() != 4 {
				t.Errorf("%s: acknowledged after %s with %d jobs released, want within 2s, 4", kind, took, released.Load())
			}
			b.waitFor("seen as started", 3*time.Second, func() bool { return len(p.log.find("scheduled event names this VM")) == 2 })
			b.put("late", "steps", "")
			time.Sleep(5 * time.Second)
			if got := b.record("late").Status; got != "" {
				t.Errorf("%s: job taken before the event ended: status %s", kind, got)
			}
			b.metadata.Complete(id)
			b.waitDone("late", 5*time.Minute)
			for _, id := range ids {
				b.waitDone(id, time.Minute)
				if got := work.repeated(id); got != 0 {
					t.Errorf("%s: steps of %s repeated = %d, want 0", kind, id, got)
				}
			}
		})
	}
}

// TestHardwareFailure: an event that has started drains the worker within a second, and
// is not acknowledged.
func TestHardwareFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		work := &steps{n: 100, each: 300 * time.Millisecond}
		ids := b.putSteps(4)
		p := b.start("vm_0", job.Kinds{"steps": work})
		b.waitFor("some work", 20*time.Second, work.atLeast(ids, 3))
		b.onAcknowledge(func() { t.Error("a started event was acknowledged") })
		b.announce("Reboot", func(e *imds.Event) { e.Status = "Started" })
		b.waitFor("drained", 2*time.Second, func() bool { return len(p.log.find("drained")) == 1 })
		if d := p.log.find("drained")[0]; d["budget"] != float64(time.Second) || len(p.log.find("job released")) != 4 {
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
		change func(*Config)
		event  func(*imds.Event)
		fault  imds.Fault
		sent   bool // whether the worker sends an acknowledgement
		starts bool // whether the event starts at once
	}{
		{"alone", func(*Config) {}, func(*imds.Event) {}, imds.Fault{}, true, true},
		{"alone, in another case and twice", func(*Config) {}, func(e *imds.Event) { e.Resources = []string{"VM_0", "vm_0"} }, imds.Fault{}, true, true},
		{"with another VM", func(*Config) {}, func(e *imds.Event) { e.Resources = []string{"vm_0", "vm_1"} }, imds.Fault{}, false, false},
		{"never", func(c *Config) { c.Acknowledge = events.AcknowledgeNever }, func(*imds.Event) {}, imds.Fault{}, false, false},
		{"refused", func(*Config) {}, func(*imds.Event) {}, imds.Fault{Status: 400}, true, false},
		{"no answer", func(*Config) {}, func(*imds.Event) {}, imds.Fault{Cut: true}, true, false},
	} {
		inBubble(t, func(t *testing.T, b *testbed) {
			p := b.start("vm_0", job.Kinds{"echo": echo}, tt.change)
			b.waitFor("process", time.Minute, func() bool { return p.machine.State() == lifecycle.Process })
			var posts atomic.Int64
			b.metadata.OnRequest(func(r imds.Request) imds.Fault {
				if r.Method != http.MethodPost {
					return imds.Fault{}
				}
				posts.Add(1)
				return tt.fault
			})
			id := b.announce("Reboot", byUser, tt.event)
			time.Sleep(time.Minute)
			if got := posts.Load() > 0; got != tt.sent || posts.Load() > 8 {
				t.Errorf("%s: acknowledgements sent = %d, want some %t, at most 8", tt.name, posts.Load(), tt.sent)
			}
			if got := b.started(id); got != tt.starts {
				t.Errorf("%s: started = %t, want %t", tt.name, got, tt.starts)
			}
			if got := len(p.log.find("event not acknowledged; it starts at its own time")) == 1; got != (tt.sent && !tt.starts) {
				t.Errorf("%s: refusal logged once = %t, want %t", tt.name, got, tt.sent && !tt.starts)
			}
			if s := p.machine.State(); s != lifecycle.Shutdown {
				t.Errorf("%s: state = %s, want shutdown until the event is over", tt.name, s)
			}
			if busiest := p.guest.Stats().BusiestSecond; busiest > 4 {
				t.Errorf("%s: %d metadata requests in one second, want at most 4", tt.name, busiest)
			}
			b.metadata.Complete(id)
			b.put("a", "echo", "1")
			b.waitDone("a", time.Minute)
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
	inBubble(t, func(t *testing.T, b *testbed) {
		quick := &steps{n: 120, each: time.Second}     // 2 min: finishes in time
		slow := &steps{n: 120, each: 10 * time.Second} // 20 min: does not
		kinds := job.Kinds{"quick": quick, "slow": slow, "echo": echo, "silent": silent(time.Hour)}
		b.put("slow", "slow", "")
		b.put("silent", "silent", "")
		p := b.start("vm_0", kinds)
		b.waitFor("some work", time.Minute, func() bool { return slow.done("slow") >= 2 })

		announced := time.Now()
		id := b.announce("Reboot")
		b.onAcknowledge(func() {
			if b.hidden() > 0 || !p.machine.Position().Facts.Has(lifecycle.WorkReleased) {
				t.Error("acknowledged before every job was released")
			}
		})
		time.Sleep(9 * time.Minute)
		b.put("early", "echo", "1")
		b.waitDone("early", 10*time.Second)
		b.put("quick", "quick", "")
		time.Sleep(time.Until(announced.Add(10*time.Minute + 2*time.Second)))
		synctest.Wait()

		if r := b.record("slow"); r.Status != checkpoint.Open || r.Interruptions != 1 || !r.HasState() {
			t.Errorf("slow job 5 min before = %s, %d interruptions, state %t, want released with its state", r.Status, r.Interruptions, r.HasState())
		}
		if r := b.record("silent"); r.Status != checkpoint.Open || r.Failures != 0 {
			t.Errorf("silent job 5 min before = %s, %d failures, want released", r.Status, r.Failures)
		}
		if r := b.record("quick"); r.Status != checkpoint.Running {
			t.Errorf("quick job 5 min before = %s, want still running", r.Status)
		}
		b.put("late", "echo", "1")
		b.waitDone("quick", 3*time.Minute)
		b.waitFor("acknowledged", 3*time.Second, func() bool { return b.started(id) })
		if r := b.record("quick"); r.Interruptions != 0 || quick.repeated("quick") != 0 {
			t.Errorf("quick job = %d interruptions, want 0", r.Interruptions)
		}
		time.Sleep(time.Minute)
		if got := b.record("late").Status; got != "" {
			t.Errorf("job taken after claiming ended: status %s", got)
		}
		b.metadata.Complete(id)
		b.waitDone("late", time.Minute)
		b.waitDone("slow", time.Hour)
		if got := slow.repeated("slow"); got != 0 {
			t.Errorf("steps repeated = %d, want 0", got)
		}
	})
}

// TestEstimateThatFails: a job that was expected to finish in time and does not is
// released before the event. The drain starts at least 30 s before.
func TestEstimateThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
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
		id := b.announce("Redeploy", in(6*time.Minute))
		b.put("slowing", "slowing", "")
		p := b.start("vm_0", job.Kinds{"slowing": slowing})
		b.waitFor("claiming ended", 2*time.Minute, func() bool {
			return len(p.log.find("claiming ended; jobs that will not be done in time are handed over")) == 1
		})
		if r := b.record("slowing"); r.Status != checkpoint.Running {
			t.Errorf("job that is expected to finish in time = %s, want running", r.Status)
		}
		b.waitFor("released", 5*time.Minute, func() bool { return b.record("slowing").Status == checkpoint.Open })
		if left := time.Until(announced.Add(6 * time.Minute)); left < 25*time.Second {
			t.Errorf("released %s before the event, want at least about 30s", left)
		}
		b.waitFor("acknowledged", 3*time.Second, func() bool { return b.started(id) })
	})
}

// TestStubbornJobDoesNotDelayDrain: a job whose handler does not stop is released and
// the drain ends in time.
func TestStubbornJobDoesNotDelayDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		stubborn := newStubborn()
		defer stubborn.finish()
		b.put("stubborn", "stubborn", "")
		p := b.start("vm_0", job.Kinds{"stubborn": stubborn})
		b.waitFor("some work", time.Minute, func() bool { return len(p.log.find("job started")) == 1 })
		b.announce("Reboot", in(5*time.Minute+10*time.Second))
		b.waitFor("released", 30*time.Second, func() bool { return b.record("stubborn").Status == checkpoint.Open })
		b.waitFor("drained", 10*time.Second, func() bool { return p.machine.Position().Facts.Has(lifecycle.WorkReleased) })
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
		inBubble(t, func(t *testing.T, b *testbed) {
			work := &steps{n: 14 * 60, each: time.Second}
			b.put("long", "steps", "")
			// An event that also names another VM is not acknowledged, so it can be withdrawn.
			id := b.announce("Reboot", in(15*time.Minute), func(e *imds.Event) { e.Resources = []string{"vm_0", "vm_1"} })
			if tt.state == lifecycle.Shutdown {
				work.n = 20 * 60
			}
			p := b.start("vm_0", job.Kinds{"steps": work, "echo": echo})
			time.Sleep(tt.after - 3*time.Second)
			b.put("a", "echo", "1")
			time.Sleep(longestPoll + 2*time.Second) // the worker polls an empty queue this seldom
			if s := p.machine.State(); s != tt.state {
				t.Errorf("%s: state = %s, want %s", tt.name, s, tt.state)
			}
			if got := b.record("a").Status == checkpoint.Done; got != tt.open {
				t.Errorf("%s: job taken = %t, want %t", tt.name, got, tt.open)
			}
			if !b.metadata.Withdraw(id) {
				t.Fatalf("%s: the event had started", tt.name)
			}
			b.waitDone("a", 20*time.Second)
			b.waitDone("long", 2*time.Hour)
			interruptions := 0
			if tt.state == lifecycle.Shutdown {
				interruptions = 1
			}
			if r := b.record("long"); r.Interruptions != interruptions || work.repeated("long") != 0 {
				t.Errorf("%s: %d interruptions, %d steps repeated, want %d, 0", tt.name, r.Interruptions, work.repeated("long"), interruptions)
			}
		})
	}
}

// TestEventPostponed: when an event is moved to a later time, the drain ends and the
// worker takes jobs again.
func TestEventPostponed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		both := func(e *imds.Event) { e.ID, e.Resources = "E", []string{"vm_0", "vm_1"} }
		b.announce("Redeploy", in(3*time.Minute), both)
		p := b.start("vm_0", job.Kinds{"echo": echo})
		b.waitFor("drained", 5*time.Second, func() bool { return p.machine.Position().Facts.Has(lifecycle.WorkReleased) })
		b.metadata.Withdraw("E")
		b.announce("Redeploy", in(time.Hour), both) // within one poll, so that the worker sees one event with a new time
		b.put("a", "echo", "1")
		b.waitDone("a", 20*time.Second)
	})
}

// TestPreemptDuringANotice: an eviction drains the worker at once although another
// event is announced for later. When the eviction is withdrawn, the other event still
// applies.
func TestPreemptDuringANotice(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Minute, 11 * time.Minute} {
		inBubble(t, func(t *testing.T, b *testbed) {
			work := &steps{n: 13 * 60, each: time.Second}
			b.put("long", "steps", "")
			reboot := b.announce("Reboot", in(15*time.Minute))
			p := b.start("vm_0", job.Kinds{"steps": work})
			time.Sleep(after)
			if r := b.record("long"); r.Status != checkpoint.Running {
				t.Fatalf("after %s: job = %s, want running", after, r.Status)
			}
			id, err := b.metadata.SimulateEviction("vm_0")
			if err != nil {
				t.Fatal(err)
			}
			evicted := time.Now()
			b.waitFor("released", 3*time.Second, func() bool { return b.record("long").Status == checkpoint.Open })
			if took := time.Since(evicted); took > 1500*time.Millisecond {
				t.Errorf("after %s: eviction to release = %s, want little more than one poll", after, took)
			}
			b.waitFor("the reboot acknowledged after the drain", 3*time.Second, func() bool { return b.started(reboot) })
			if !b.metadata.Withdraw(id) {
				t.Fatalf("after %s: the eviction had started", after)
			}
			b.put("short", "steps", "")
			time.Sleep(10 * time.Second)
			if s := p.machine.State(); s != lifecycle.Shutdown {
				t.Errorf("after %s: state = %s, want shutdown until the reboot is over", after, s)
			}
			b.metadata.Complete(reboot)
			b.waitDone("long", time.Hour)
			if got := work.repeated("long"); got != 0 {
				t.Errorf("after %s: steps repeated = %d, want 0", after, got)
			}
		})
	}
}

// TestAlmostDoneForever: a job that reports a fraction of 1 and does not finish is
// released 30 s before the event.
func TestAlmostDoneForever(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		almost := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: []byte("all of it"), Fraction: 1})
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		gone := time.Now().Add(6 * time.Minute)
		b.put("almost", "almost", "")
		b.announce("Terminate", in(6*time.Minute))
		b.start("vm_0", job.Kinds{"almost": almost})
		b.waitFor("released", 6*time.Minute, func() bool { return b.record("almost").Status == checkpoint.Open })
		if left := time.Until(gone); left < 25*time.Second || left > 31*time.Second {
			t.Errorf("released %s before the event, want about 30s", left)
		}
	})
}

// TestNoWorkAfterAcknowledgement: no job is taken after an event was acknowledged, even
// if the service has not started it yet.
func TestNoWorkAfterAcknowledgement(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		p := b.start("vm_0", job.Kinds{"echo": echo})
		b.waitFor("process", time.Minute, func() bool { return p.machine.State() == lifecycle.Process })
		b.metadata.OnRequest(func(r imds.Request) imds.Fault {
			if r.Method == http.MethodPost {
				return imds.Fault{Status: http.StatusOK, Body: []byte{}} // accepted, but not started yet
			}
			return imds.Fault{}
		})
		later := b.announce("Redeploy", in(72*time.Hour))
		restart := b.announce("Reboot", byUser)
		b.waitFor("both acknowledged", 5*time.Second, func() bool {
			return len(p.log.find("event acknowledged; it may start at any moment")) == 2
		})
		b.metadata.Complete(restart)
		b.put("a", "echo", "1")
		time.Sleep(10 * time.Second)
		if s, got := p.machine.State(), b.record("a").Status; s != lifecycle.Shutdown || got != "" {
			t.Errorf("state = %s, job %q, want shutdown until the acknowledged event is over, job untouched", s, got)
		}
		b.metadata.Complete(later)
		b.waitDone("a", 20*time.Second)
	})
}
