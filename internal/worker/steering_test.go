package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/testing/race"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/control"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/presence"
	"github.com/spotworker/spotworker/job"
)

// canceller is an operator's tool whose requests arrive without faults.
func (b *testbed) canceller() *operate.Canceller {
	s := b.connect(b.transport(operator))
	return &operate.Canceller{Records: s.records, Control: s.control, Name: operator, Reason: "not needed"}
}

// cancelJobs cancels jobs as an operator does.
func (b *testbed) cancelJobs(ids ...string) {
	b.t.Helper()
	err := b.canceller().Cancel(b.t.Context(), slices.Values(ids), func(o operate.CancelOutcome) error { return o.Err })
	if err != nil {
		b.t.Errorf("cancel %v: %v", ids, err)
	}
}

// waiting is a handler that waits until it is stopped, and says when and why.
type waiting struct {
	mu      sync.Mutex
	started map[string]int
	stops   map[string]*job.Stop
	stopped map[string]time.Time
}

func newWaiting() *waiting {
	return &waiting{started: map[string]int{}, stops: map[string]*job.Stop{}, stopped: map[string]time.Time{}}
}

func (w *waiting) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	w.mu.Lock()
	w.started[j.ID]++
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stops[j.ID], w.stopped[j.ID] = job.StopOf(ctx), time.Now()
	return []byte("too late"), nil
}

func (w *waiting) starts(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.started[id]
}

func (w *waiting) stopOf(id string) (*job.Stop, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stops[id], w.stopped[id]
}

// TestCancelRunning: a job that is cancelled at any moment is stopped within 30 s, is
// told why, and commits nothing, although its handler returns a result.
func TestCancelRunning(t *testing.T) {
	race.Skip(t)
	const workers, jobs = 5, 100
	inBubble(t, func(t *testing.T, b *testbed) {
		handler := newWaiting()
		for i := range jobs {
			b.put(fmt.Sprintf("job-%d", i), "waits", "1")
		}
		for i := range workers {
			b.start(fmt.Sprintf("vm_%d", i), job.Kinds{"waits": handler}, func(c *Config) { c.Concurrency = jobs / workers })
			time.Sleep(2 * time.Second) // their heartbeats come at different times
		}
		time.Sleep(time.Minute)
		random := rand.New(rand.NewPCG(19, 0))
		var took []time.Duration
		for i := range jobs {
			id := fmt.Sprintf("job-%d", i)
			time.Sleep(time.Duration(random.Int64N(int64(15 * time.Second))))
			if n := handler.starts(id); n != 1 {
				t.Fatalf("job %s was started %d times before it was cancelled, want once", id, n)
			}
			begun := time.Now()
			b.cancelJobs(id)
			b.waitFor(id+" stopped", 30*time.Second, func() bool { stop, _ := handler.stopOf(id); return stop != nil })
			stop, at := handler.stopOf(id)
			if stop.Reason != job.Cancelled {
				t.Errorf("job %s was stopped because %v, want %s", id, stop, job.Cancelled)
			}
			took = append(took, at.Sub(begun))
		}
		b.waitFor("no message left", time.Minute, func() bool { return b.messagesLeft() == 0 })
		for i := range jobs {
			if r := b.record(fmt.Sprintf("job-%d", i)); r.Status != checkpoint.Cancelled || r.Reason != "not needed" {
				t.Errorf("record = %s %q, want it cancelled, with the reason", r.Status, r.Reason)
			}
		}
		slices.Sort(took)
		t.Logf("from a cancel to the end of its handler's context, %d jobs on %d workers: median %s, p99 %s, longest %s",
			jobs, workers, took[jobs/2].Round(time.Millisecond), took[jobs*99/100].Round(time.Millisecond), took[jobs-1].Round(time.Millisecond))
	})
}

// TestCancelWaiting: jobs that were cancelled before their first claim are never
// started, and those that were put later cost no call more.
func TestCancelWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		handler := newWaiting()
		var ids []string
		for i := range 20 {
			ids = append(ids, fmt.Sprintf("job-%d", i))
			b.put(ids[i], "waits", "1")
		}
		b.cancelJobs(ids...)
		p := b.start("vm_0", job.Kinds{"waits": handler, "echo": echo})
		b.waitFor("no message left", time.Minute, func() bool { return b.messagesLeft() == 0 })
		for _, id := range ids {
			if r := b.record(id); handler.starts(id) != 0 || r.Status != checkpoint.Cancelled {
				t.Errorf("job %s was started %d times and is %s, want never, and cancelled", id, handler.starts(id), r.Status)
			}
		}
		time.Sleep(2 * time.Minute)
		var calls []string // for records
		b.server.OnResult(func(r storage.Result) {
			if r.Container == b.names.Records && r.Operation != storage.OpGetBlobProperties {
				calls = append(calls, r.Operation)
			}
		})
		b.put("later", "echo", "1")
		b.waitFor("no message left", time.Minute, func() bool { return b.messagesLeft() == 0 })
		b.server.OnResult(nil)
		if n := len(p.log.find("job committed")); n != 1 || !slices.Equal(calls, []string{storage.OpPutBlob}) {
			t.Errorf("%d jobs were committed with the calls %q for records, want that which was put later, with one write", n, calls)
		}
	})
}

// TestCancelWithoutTheDocument: a worker of a version that does not read the control
// document commits nothing of a cancelled job either, and stops it at its next write.
func TestCancelWithoutTheDocument(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		long, short := &steps{n: 600, each: time.Second}, &steps{n: 3, each: time.Second}
		b.put("runs", "long", "1")
		b.put("waits", "short", "1")
		b.cancelJobs("waits")
		p := b.start("vm_0", job.Kinds{"long": long, "short": short}, func(c *Config) { c.Control = nil })
		time.Sleep(30 * time.Second)
		b.cancelJobs("runs")
		b.waitFor("no message left", 2*time.Minute, func() bool { return b.messagesLeft() == 0 })
		for _, id := range []string{"runs", "waits"} {
			if r := b.record(id); r.Status != checkpoint.Cancelled {
				t.Errorf("job %s is %s, want it cancelled", id, r.Status)
			}
		}
		if n := len(p.log.find("job committed")); n != 0 {
			t.Errorf("%d jobs were committed, want none", n)
		}
	})
}

// TestCancelAtEveryCall cancels a job at each storage call of its worker, before the
// call arrives. Whatever it meets, the job ends once: cancelled, or committed if that
// came first, and nothing replaces the outcome.
func TestCancelAtEveryCall(t *testing.T) {
	outcomes := map[checkpoint.Status]int{}
	for at := 1; cancelAt(t, outcomes, func(n int, _ *http.Request) bool { return n == at }) && !t.Failed(); at++ {
	}
	// The number of calls differs a little between runs, so the last one is found by what it is.
	cancelAt(t, outcomes, func(_ int, r *http.Request) bool {
		return r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/messages/")
	})
	if outcomes[checkpoint.Cancelled] < 10 || outcomes[checkpoint.Done] == 0 {
		t.Errorf("outcomes = %v, want both", outcomes)
	}
	t.Logf("outcomes by the call at which the job was cancelled: %v", outcomes)
}

// cancelAt runs a job that is cancelled at the first call that is chosen, counts its
// outcome, and reports whether that call came.
func cancelAt(t *testing.T, outcomes map[checkpoint.Status]int, chosen func(n int, r *http.Request) bool) (reached bool) {
	t.Helper()
	inBubble(t, func(t *testing.T, b *testbed) {
		rec := b.addRecorder()
		work := &steps{n: 24, each: 500 * time.Millisecond}
		b.put("long", "steps", "1")
		p := b.startWithLink("vm_0", job.Kinds{"steps": work}, func(l *link) {
			l.faultFor = func(n int, r *http.Request) requestFault {
				if reached || !chosen(n, r) {
					return requestFault{}
				}
				reached = true
				return requestFault{onSend: func() { b.cancelJobs("long") }}
			}
		})
		b.waitFor("no message left", 5*time.Minute, func() bool { return b.messagesLeft() == 0 })
		p.stop()
		if !reached {
			return
		}
		status := b.record("long").Status
		outcomes[status]++
		if status != checkpoint.Cancelled && status != checkpoint.Done {
			t.Errorf("the job is %s, want it cancelled or done", status)
		}
		b.checkOutcome(t, "long", status)
		rec.check(t)
	})
	return reached
}

// TestCancelInTheDocumentAlone: a job that the control document names, or that it may
// mean, continues as long as its record is not cancelled.
func TestCancelInTheDocumentAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		rec := b.addRecorder()
		work := &steps{n: 90, each: time.Second}
		b.put("named", "steps", "1")
		b.put("meant", "steps", "1")
		b.start("vm_0", job.Kinds{"steps": work})
		time.Sleep(20 * time.Second)
		b.ask(func(d *control.Document, now time.Time) { d.AddCancels([]string{"named"}, now) })
		time.Sleep(20 * time.Second)
		b.ask(func(d *control.Document, now time.Time) { d.CheckAll = now })
		b.waitFor("no message left", 3*time.Minute, func() bool { return b.messagesLeft() == 0 })
		for _, id := range []string{"named", "meant"} {
			b.checkOutcome(t, id, checkpoint.Done)
			if n := work.repeated(id); n != 0 {
				t.Errorf("job %s: %d steps were repeated, want none", id, n)
			}
		}
		rec.check(t)
	})
}

// TestCancelIsReadAgain: a look at the record that fails is repeated.
func TestCancelIsReadAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.addRecorder()
		handler := newWaiting()
		b.put("a", "waits", "1")
		var from time.Time
		p := b.startWithLink("vm_0", job.Kinds{"waits": handler}, func(l *link) {
			l.faultFor = func(_ int, r *http.Request) requestFault {
				broken := !from.IsZero() && time.Since(from) < 40*time.Second && r.Method == http.MethodHead
				return requestFault{lost: broken}
			}
		})
		time.Sleep(20 * time.Second)
		p.link.mu.Lock()
		from = time.Now()
		p.link.mu.Unlock()
		b.cancelJobs("a")
		b.waitFor("job stopped", 90*time.Second, func() bool { stop, _ := handler.stopOf("a"); return stop != nil })
		if stop, _ := handler.stopOf("a"); stop.Reason != job.Cancelled || errors.Is(stop, context.Canceled) {
			t.Errorf("stopped because %v, want %s", stop, job.Cancelled)
		}
		if len(p.log.find("cannot read whether the job was cancelled; trying again")) == 0 {
			t.Error("the log does not say that the record could not be read")
		}
	})
}

// ask changes the control document as an operator does.
func (b *testbed) ask(change func(d *control.Document, now time.Time)) {
	b.t.Helper()
	_, err := b.connect(b.transport(operator)).control.Edit(b.t.Context(), func(d *control.Document, now time.Time) (bool, error) {
		change(d, now)
		return true, nil
	})
	if err != nil {
		b.t.Error(err)
	}
}

// heartbeatOf returns a worker's heartbeat.
func (b *testbed) heartbeatOf(p *process) presence.Presence {
	b.t.Helper()
	synctest.Wait() // the worker knows its name
	found, _, err := b.workers.Read(b.t.Context(), p.name)
	if err != nil {
		b.t.Error(err)
	}
	return found.Presence
}

// TestDrainAndResume: a worker that an operator drains hands its jobs over, with all of
// their progress, and idles, also after a restart, until it is resumed.
func TestDrainAndResume(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.addRecorder()
		work := &steps{n: 200, each: time.Second}
		b.put("long", "steps", "1")
		p := b.start("vm_0", job.Kinds{"steps": work})
		time.Sleep(47 * time.Second)
		b.ask(func(d *control.Document, now time.Time) {
			d.Drains = map[string]control.Mark{p.name: {At: now, By: "spotctl@desk", Reason: "new disk"}}
		})
		b.waitFor("held", 20*time.Second, func() bool { return p.machine.Position().Facts.Has(lifecycle.Held | lifecycle.WorkReleased) })
		r := b.record("long")
		if done := int(r.Fraction*200 + 0.5); r.Status != checkpoint.Open || done < 47 || work.repeated("long") != 0 || r.Failures != 0 {
			t.Errorf("record = %s, %d steps, %d failures, want it open with all steps", r.Status, done, r.Failures)
		}
		time.Sleep(time.Minute)
		if h := b.heartbeatOf(p); h.State != "shutdown" || h.Asked != presence.AskedDrain || !h.Steered || h.Control != 1 || h.LastDrain.Reason != string(job.Drained) {
			t.Errorf("heartbeat = %+v, want it drained by revision 1", h)
		}
		p.stop()
		p = b.start("vm_0", job.Kinds{"steps": work})
		time.Sleep(time.Minute)
		if s := p.machine.State(); s != lifecycle.Shutdown || b.record("long").Status != checkpoint.Open {
			t.Errorf("after a restart: %s, and the job is %s, want shutdown, and open", s, b.record("long").Status)
		}
		b.ask(func(d *control.Document, _ time.Time) { d.Drains = nil })
		b.waitDone("long", 5*time.Minute)
		if n := work.repeated("long"); n != 0 {
			t.Errorf("%d steps were repeated, want none", n)
		}
		if h := b.heartbeatOf(p); h.State != "process" || h.Asked != "" || h.Control != 2 {
			t.Errorf("heartbeat = %+v, want it processing jobs", h)
		}
	})
}

// TestEvictedWhileHeld: a notice that comes to a drained worker and is withdrawn leaves
// it drained; resuming it during a notice does not make it work.
func TestEvictedWhileHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.put("a", "echo", "1")
		b.ask(func(d *control.Document, now time.Time) { d.DrainAll = &control.Mark{At: now} })
		p := b.start("vm_0", job.Kinds{"echo": echo})
		time.Sleep(30 * time.Second)
		id, err := b.metadata.SimulateEviction("vm_0")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		b.ask(func(d *control.Document, _ time.Time) { d.DrainAll = nil })
		time.Sleep(time.Minute)
		if at := p.machine.Position(); at.State != lifecycle.Shutdown || at.Facts.Has(lifecycle.Held) || b.messagesLeft() != 1 {
			t.Errorf("resumed during the notice: %s, %d messages, want shutdown, and the message left", at, b.messagesLeft())
		}
		_ = id
	})
}

// TestPause: no worker claims while claiming is paused, running jobs end, and messages
// that were claimed ahead go back.
func TestPause(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.addRecorder()
		work := &steps{n: 40, each: time.Second}
		for i := range 12 {
			b.put(fmt.Sprintf("job-%d", i), "steps", "1")
		}
		p := b.start("vm_0", job.Kinds{"steps": work})
		time.Sleep(5 * time.Second)
		b.ask(func(d *control.Document, now time.Time) { d.Pause = &control.Mark{At: now, By: "me"} })
		time.Sleep(2 * time.Minute)
		if n := b.messagesLeft(); n != 8 {
			t.Errorf("messages left = %d, want those of the 8 jobs that were not started", n)
		}
		for _, m := range b.server.Messages(b.names.Queue) {
			if !m.Visible {
				t.Error("a message is hidden while claiming is paused")
			}
		}
		if h := b.heartbeatOf(p); h.State != "process" || h.Asked != presence.AskedPause {
			t.Errorf("heartbeat = %s %s, want process, paused", h.State, h.Asked)
		}
		before := b.server.Counts()[storage.OpGetMessages]
		time.Sleep(10 * time.Minute)
		if claims := b.server.Counts()[storage.OpGetMessages] - before; claims > 0 {
			t.Errorf("claims of a paused worker in 10 min = %d, want none", claims)
		}
		b.ask(func(d *control.Document, _ time.Time) { d.Pause = nil })
		b.waitFor("all done", 5*time.Minute, func() bool { return b.messagesLeft() == 0 })
	})
}

// TestPausedKind: of a paused kind no job is started, by workers that have it or lack it;
// other kinds continue, and a worker that has no other kind claims nothing.
func TestPausedKind(t *testing.T) {
	race.Skip(t)
	inBubble(t, func(t *testing.T, b *testbed) {
		b.addRecorder()
		work := &steps{n: 40, each: time.Second}
		b.put("runs", "steps", "1")
		p := b.start("vm_0", job.Kinds{"steps": work, "echo": echo})
		b.start("vm_1", job.Kinds{"echo": echo})
		time.Sleep(10 * time.Second)
		b.ask(func(d *control.Document, now time.Time) {
			d.PausedKinds = map[string]control.Mark{"steps": {At: now, By: "me", Reason: "bad version"}}
		})
		time.Sleep(20 * time.Second)
		b.put("waits", "steps", "1")
		for i := range 20 {
			b.put(fmt.Sprintf("echo-%d", i), "echo", "1")
		}
		b.waitDone("runs", 2*time.Minute)
		for i := range 20 {
			b.waitDone(fmt.Sprintf("echo-%d", i), time.Minute)
		}
		time.Sleep(2 * time.Hour) // longer than an unknown kind waits
		if b.messagesLeft() != 1 || b.record("waits").Status != "" || len(b.poisonMessages()) != 0 {
			t.Errorf("%d messages left, record %+v, %d poison messages; want the job to wait", b.messagesLeft(), b.record("waits"), len(b.poisonMessages()))
		}
		if h := b.heartbeatOf(p); h.Asked != presence.AskedKinds {
			t.Errorf("heartbeat says %q is asked, want %q", h.Asked, presence.AskedKinds)
		}
		if len(p.log.find("kind is paused; its running jobs continue")) != 1 {
			t.Error("the log does not say once that the kind is paused")
		}
		b.ask(func(d *control.Document, now time.Time) { d.PausedKinds["echo"] = control.Mark{At: now} })
		time.Sleep(20 * time.Second)
		before := b.server.Counts()[storage.OpGetMessages]
		time.Sleep(10 * time.Minute)
		if claims := b.server.Counts()[storage.OpGetMessages] - before; claims > 0 {
			t.Errorf("claims in 10 min of workers whose kinds are all paused = %d, want none", claims)
		}
		b.ask(func(d *control.Document, _ time.Time) { d.PausedKinds = nil })
		b.waitDone("waits", 3*time.Minute)
	})
}

// TestQuarantine: the workers on a VM hand their jobs over and idle, also one that starts
// there later, and work again when the VM is freed. Another VM has the jobs.
func TestQuarantine(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.addRecorder()
		work := &steps{n: 100, each: time.Second}
		b.put("long", "steps", "1")
		p := b.start("vm_0", job.Kinds{"steps": work})
		time.Sleep(40 * time.Second)
		b.ask(func(d *control.Document, now time.Time) {
			d.Quarantine = map[string]control.Mark{"VM_0": {At: now, By: "me"}}
		})
		b.waitFor("held", 20*time.Second, func() bool { return p.machine.Position().Facts.Has(lifecycle.Held | lifecycle.WorkReleased) })
		if r := b.record("long"); r.Status != checkpoint.Open || r.Failures != 0 {
			t.Errorf("record = %s, %d failures, want it open", r.Status, r.Failures)
		}
		p.stop()
		p = b.start("vm_0", job.Kinds{"steps": work})
		time.Sleep(time.Minute)
		if h := b.heartbeatOf(p); h.State != "shutdown" || h.Asked != presence.AskedQuarantine {
			t.Errorf("heartbeat after a restart = %s, %q is asked; want shutdown, quarantine", h.State, h.Asked)
		}
		b.start("vm_1", job.Kinds{"steps": work})
		b.waitDone("long", 5*time.Minute)
		if n := work.repeated("long"); n != 0 {
			t.Errorf("%d steps were repeated, want none", n)
		}
		b.ask(func(d *control.Document, _ time.Time) { d.Quarantine = nil })
		time.Sleep(20 * time.Second)
		if h := b.heartbeatOf(p); h.State != "process" || h.Asked != "" {
			t.Errorf("heartbeat of a freed VM = %s, %q is asked; want process", h.State, h.Asked)
		}
	})
}

// TestControlNotRead: a worker that cannot read the control document keeps to what it
// read last, logs that once, and follows it again later. One that starts so takes work.
func TestControlNotRead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.ask(func(d *control.Document, now time.Time) { d.Pause = &control.Mark{At: now} })
		p := b.start("vm_0", job.Kinds{"echo": echo})
		time.Sleep(20 * time.Second)
		refuse := func(on bool) {
			b.server.OnCall(func(c storage.Call) storage.Fault {
				if on && c.Container == b.names.Control {
					return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch", Message: "no"}}
				}
				return storage.Fault{}
			})
		}
		refuse(true)
		b.put("a", "echo", "1")
		time.Sleep(5 * time.Minute)
		if b.messagesLeft() != 1 || len(p.log.find("control document not read; the worker keeps to what it read last, and does not learn of cancels, drains and pauses")) != 1 {
			t.Error("the paused worker took a job, or did not log once that it cannot read the document")
		}
		q := b.start("vm_1", job.Kinds{"echo": echo})
		b.waitDone("a", time.Minute)
		if h := b.heartbeatOf(q); h.Steered {
			t.Errorf("heartbeat = %+v, want a worker that follows no document", h)
		}
		refuse(false)
		b.put("b", "echo", "1")
		time.Sleep(20 * time.Second)
		b.ask(func(d *control.Document, _ time.Time) { d.Pause = nil })
		b.waitDone("b", time.Minute)
	})
}
