package jobs

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

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/job"
)

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
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	const workers, jobs = 5, 100
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		handler := newWaiting()
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "waits", "1")
		}
		for i := range workers {
			b.Start(fmt.Sprintf("vm_%d", i), job.Kinds{"waits": handler}, func(c *worker.Config) { c.Concurrency = jobs / workers })
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
			b.CancelJobs(id)
			b.WaitFor(id+" stopped", 30*time.Second, func() bool { stop, _ := handler.stopOf(id); return stop != nil })
			stop, at := handler.stopOf(id)
			if stop.Reason != job.Cancelled {
				t.Errorf("job %s was stopped because %v, want %s", id, stop, job.Cancelled)
			}
			took = append(took, at.Sub(begun))
		}
		b.WaitFor("no message left", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		for i := range jobs {
			if r := b.Record(fmt.Sprintf("job-%d", i)); r.Status != checkpoint.Cancelled || r.Reason != "not needed" {
				t.Errorf("record = %s %q, want it cancelled, with the reason", r.Status, r.Reason)
			}
		}
		slices.Sort(took)
		t.Logf("from a cancel to the end of its handler's context, %d jobs on %d workers: median %s, p99 %s, longest %s",
			jobs, workers, took[jobs/2].Round(time.Millisecond), took[jobs*99/100].Round(time.Millisecond), took[jobs-1].Round(time.Millisecond))
	})
}

// TestCancelWaiting: jobs that were cancelled before their first claim are never started,
// and later jobs cost no call more.
func TestCancelWaiting(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		handler := newWaiting()
		var ids []string
		for i := range 20 {
			ids = append(ids, fmt.Sprintf("job-%d", i))
			b.Put(ids[i], "waits", "1")
		}
		b.CancelJobs(ids...)
		p := b.Start("vm_0", job.Kinds{"waits": handler, "echo": rig.Echo})
		b.WaitFor("no message left", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		for _, id := range ids {
			if r := b.Record(id); handler.starts(id) != 0 || r.Status != checkpoint.Cancelled {
				t.Errorf("job %s was started %d times and is %s, want never, and cancelled", id, handler.starts(id), r.Status)
			}
		}
		time.Sleep(2 * time.Minute)
		var calls []string // for records
		b.Server.OnResult(func(r storage.Result) {
			if r.Container == b.Names.Records && r.Operation != storage.OpGetBlobProperties {
				calls = append(calls, r.Operation)
			}
		})
		b.Put("later", "echo", "1")
		b.WaitFor("no message left", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		b.Server.OnResult(nil)
		if n := len(p.Log.Find("job committed")); n != 1 || !slices.Equal(calls, []string{storage.OpPutBlob}) {
			t.Errorf("%d jobs were committed with the calls %q for records, want that which was put later, with one write", n, calls)
		}
	})
}

// TestCancelAtEveryCall cancels a job at each storage call of its worker, before the call
// arrives. At every call, the job ends once: cancelled, or committed if that came first,
// and nothing replaces the outcome.
func TestCancelAtEveryCall(t *testing.T) {
	outcomes := map[checkpoint.Status]int{}
	for at := 1; cancelAt(t, outcomes, func(n int, _ *http.Request) bool { return n == at }) && !t.Failed(); at++ {
	}
	// The number of calls differs a little between runs, so the last one is found by its type.
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
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		rec := b.AddRecorder()
		work := &rig.Steps{N: 24, Each: 500 * time.Millisecond}
		b.Put("long", "steps", "1")
		p := b.StartWithLink("vm_0", job.Kinds{"steps": work}, func(l *rig.Link) {
			l.FaultFor = func(n int, r *http.Request) rig.RequestFault {
				if reached || !chosen(n, r) {
					return rig.RequestFault{}
				}
				reached = true
				return rig.RequestFault{OnSend: func() { b.CancelJobs("long") }}
			}
		})
		b.WaitFor("no message left", 5*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		p.Stop()
		if !reached {
			return
		}
		status := b.Record("long").Status
		outcomes[status]++
		if status != checkpoint.Cancelled && status != checkpoint.Done {
			t.Errorf("the job is %s, want it cancelled or done", status)
		}
		b.CheckOutcome(t, "long", status)
		rec.Check(t)
	})
	return reached
}

// TestCancelInTheDocumentAlone: a job that the control document names, or that it may
// mean, continues as long as its record is not cancelled.
func TestCancelInTheDocumentAlone(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		rec := b.AddRecorder()
		work := &rig.Steps{N: 90, Each: time.Second}
		b.Put("named", "steps", "1")
		b.Put("meant", "steps", "1")
		b.Start("vm_0", job.Kinds{"steps": work})
		time.Sleep(20 * time.Second)
		ask(b, func(d *control.Document, now time.Time) { d.AddCancels([]string{"named"}, now) })
		time.Sleep(20 * time.Second)
		ask(b, func(d *control.Document, now time.Time) { d.CheckAll = now })
		b.WaitFor("no message left", 3*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		for _, id := range []string{"named", "meant"} {
			b.CheckOutcome(t, id, checkpoint.Done)
			if n := work.Repeated(id); n != 0 {
				t.Errorf("job %s: %d steps were repeated, want none", id, n)
			}
		}
		rec.Check(t)
	})
}

// TestCancelIsReadAgain: a look at the record that fails is repeated.
func TestCancelIsReadAgain(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.AddRecorder()
		handler := newWaiting()
		b.Put("a", "waits", "1")
		var from time.Time
		p := b.StartWithLink("vm_0", job.Kinds{"waits": handler}, func(l *rig.Link) {
			l.FaultFor = func(_ int, r *http.Request) rig.RequestFault {
				broken := !from.IsZero() && time.Since(from) < 40*time.Second && r.Method == http.MethodHead
				return rig.RequestFault{Lost: broken}
			}
		})
		time.Sleep(20 * time.Second)
		p.Link.Mu.Lock()
		from = time.Now()
		p.Link.Mu.Unlock()
		b.CancelJobs("a")
		b.WaitFor("job stopped", 90*time.Second, func() bool { stop, _ := handler.stopOf("a"); return stop != nil })
		if stop, _ := handler.stopOf("a"); stop.Reason != job.Cancelled || errors.Is(stop, context.Canceled) {
			t.Errorf("stopped because %v, want %s", stop, job.Cancelled)
		}
		if len(p.Log.Find("cannot read whether the job was cancelled; trying again")) == 0 {
			t.Error("the log does not say that the record could not be read")
		}
	})
}

// ask changes the control document as an operator does.
func ask(b *rig.Bed, change func(d *control.Document, now time.Time)) {
	b.T.Helper()
	_, err := b.Connect(b.Transport(recorder.Operator)).Control.Edit(b.T.Context(), func(d *control.Document, now time.Time) (bool, error) {
		change(d, now)
		return true, nil
	})
	if err != nil {
		b.T.Error(err)
	}
}

// heartbeatOf returns a worker's heartbeat.
func heartbeatOf(b *rig.Bed, p *rig.Process) presence.Presence {
	b.T.Helper()
	synctest.Wait() // the worker knows its name
	found, _, err := b.Workers.Read(b.T.Context(), p.Name())
	if err != nil {
		b.T.Error(err)
	}
	return found.Presence
}

// TestDrainAndResume: a worker that an operator drains hands its jobs over, with all of
// their progress, and idles, also after a restart, until it is resumed.
func TestDrainAndResume(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.AddRecorder()
		work := &rig.Steps{N: 200, Each: time.Second}
		b.Put("long", "steps", "1")
		p := b.Start("vm_0", job.Kinds{"steps": work})
		time.Sleep(47 * time.Second)
		ask(b, func(d *control.Document, now time.Time) {
			d.Drains = map[string]control.Mark{p.Name(): {At: now, By: "spotctl@desk", Reason: "new disk"}}
		})
		b.WaitFor("held", 20*time.Second, func() bool { return p.Position().Facts.Has(lifecycle.Held | lifecycle.WorkReleased) })
		r := b.Record("long")
		if done := int(r.Fraction*200 + 0.5); r.Status != checkpoint.Open || done < 47 || work.Repeated("long") != 0 || r.Failures != 0 {
			t.Errorf("record = %s, %d steps, %d failures, want it open with all steps", r.Status, done, r.Failures)
		}
		time.Sleep(time.Minute)
		if h := heartbeatOf(b, p); h.State != "shutdown" || h.Asked != presence.AskedDrain || !h.Steered || h.Control != 1 ||
			h.LastDrain.Reason != string(job.Drained) {
			t.Errorf("heartbeat = %+v, want it drained by revision 1", h)
		}
		p.Stop()
		p = b.Start("vm_0", job.Kinds{"steps": work})
		time.Sleep(time.Minute)
		if s := p.Position().State; s != lifecycle.Shutdown || b.Record("long").Status != checkpoint.Open {
			t.Errorf("after a restart: %s, and the job is %s, want shutdown, and open", s, b.Record("long").Status)
		}
		ask(b, func(d *control.Document, _ time.Time) { d.Drains = nil })
		b.WaitDone("long", 5*time.Minute)
		if n := work.Repeated("long"); n != 0 {
			t.Errorf("%d steps were repeated, want none", n)
		}
		if h := heartbeatOf(b, p); h.State != "process" || h.Asked != "" || h.Control != 2 {
			t.Errorf("heartbeat = %+v, want it processing jobs", h)
		}
	})
}

// TestDrainAfterItsJobs: a worker that may finish its jobs claims no others, and drains when they
// have ended, or when their time is over.
func TestDrainAfterItsJobs(t *testing.T) {
	for name, row := range map[string]struct {
		within, drained time.Duration
		status          checkpoint.Status
	}{
		"they end":     {30 * time.Minute, 4 * time.Minute, checkpoint.Done},
		"time is over": {time.Minute, 95 * time.Second, checkpoint.Open},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.AddRecorder()
				work := &rig.Steps{N: 200, Each: time.Second}
				b.Put("long", "steps", "1")
				p := b.Start("vm_0", job.Kinds{"steps": work})
				time.Sleep(10 * time.Second)
				ask(b, func(d *control.Document, now time.Time) {
					d.Drains = map[string]control.Mark{p.Name(): {At: now, FinishBy: now.Add(row.within)}}
				})
				time.Sleep(20 * time.Second)
				b.Put("later", "steps", "1")
				time.Sleep(10 * time.Second)
				if h := heartbeatOf(b, p); h.State != "process" || h.Asked != presence.AskedDrain || h.Count != 1 {
					t.Errorf("heartbeat = %+v, want a worker that is to drain, with one job", h)
				}
				b.WaitFor("held", row.drained, func() bool { return p.Position().Facts.Has(lifecycle.Held | lifecycle.WorkReleased) })
				if long, n := b.Record("long"), work.Repeated("long"); long.Status != row.status || n != 0 || work.Done("later") > 0 {
					t.Errorf("the job is %s, %d steps repeated, the later one started: %t; want %s, 0, false", long.Status, n,
						work.Done("later") > 0, row.status)
				}
				ask(b, func(d *control.Document, _ time.Time) { d.Drains = nil })
				b.WaitDone("later", 10*time.Minute)
			})
		})
	}
}

// TestEvictedWhileHeld: a notice that comes to a drained worker and is withdrawn leaves
// it drained; resuming it during a notice does not make it work.
func TestEvictedWhileHeld(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Put("a", "echo", "1")
		ask(b, func(d *control.Document, now time.Time) { d.DrainAll = &control.Mark{At: now} })
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		time.Sleep(30 * time.Second)
		id, err := b.Metadata.SimulateEviction("vm_0")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		ask(b, func(d *control.Document, _ time.Time) { d.DrainAll = nil })
		time.Sleep(time.Minute)
		if at := p.Position(); at.State != lifecycle.Shutdown || at.Facts.Has(lifecycle.Held) || b.MessagesLeft() != 1 {
			t.Errorf("resumed during the notice: %s, %d messages, want shutdown, and the message left", at, b.MessagesLeft())
		}
		_ = id
	})
}

// TestPause: no worker claims while claiming is paused, running jobs end, and messages
// that were claimed ahead go back.
func TestPause(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.AddRecorder()
		work := &rig.Steps{N: 40, Each: time.Second}
		for i := range 12 {
			b.Put(fmt.Sprintf("job-%d", i), "steps", "1")
		}
		p := b.Start("vm_0", job.Kinds{"steps": work})
		time.Sleep(5 * time.Second)
		ask(b, func(d *control.Document, now time.Time) { d.Pause = &control.Mark{At: now, By: "me"} })
		time.Sleep(2 * time.Minute)
		if n := b.MessagesLeft(); n != 8 {
			t.Errorf("messages left = %d, want those of the 8 jobs that were not started", n)
		}
		for _, m := range b.Server.Messages(b.Names.Queue) {
			if !m.Visible {
				t.Error("a message is hidden while claiming is paused")
			}
		}
		if h := heartbeatOf(b, p); h.State != "process" || h.Asked != presence.AskedPause {
			t.Errorf("heartbeat = %s %s, want process, paused", h.State, h.Asked)
		}
		before := b.Server.Counts()[storage.OpGetMessages]
		time.Sleep(10 * time.Minute)
		if claims := b.Server.Counts()[storage.OpGetMessages] - before; claims > 0 {
			t.Errorf("claims of a paused worker in 10 min = %d, want none", claims)
		}
		ask(b, func(d *control.Document, _ time.Time) { d.Pause = nil })
		b.WaitFor("all done", 5*time.Minute, func() bool { return b.MessagesLeft() == 0 })
	})
}

// TestPausedKind: of a paused kind no job is started, by workers that have it or lack it;
// other kinds continue, and a worker that has no other kind claims nothing.
func TestPausedKind(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.AddRecorder()
		work := &rig.Steps{N: 40, Each: time.Second}
		b.Put("runs", "steps", "1")
		p := b.Start("vm_0", job.Kinds{"steps": work, "echo": rig.Echo})
		b.Start("vm_1", job.Kinds{"echo": rig.Echo})
		time.Sleep(10 * time.Second)
		ask(b, func(d *control.Document, now time.Time) {
			d.PausedKinds = map[string]control.Mark{"steps": {At: now, By: "me", Reason: "bad version"}}
		})
		time.Sleep(20 * time.Second)
		b.Put("waits", "steps", "1")
		for i := range 20 {
			b.Put(fmt.Sprintf("echo-%d", i), "echo", "1")
		}
		b.WaitDone("runs", 2*time.Minute)
		for i := range 20 {
			b.WaitDone(fmt.Sprintf("echo-%d", i), time.Minute)
		}
		time.Sleep(2 * time.Hour) // longer than an unknown kind waits
		if b.MessagesLeft() != 1 || b.Record("waits").Status != "" || len(b.PoisonMessages()) != 0 {
			t.Errorf("%d messages left, record %+v, %d poison messages; want the job to wait", b.MessagesLeft(), b.Record("waits"),
				len(b.PoisonMessages()))
		}
		if h := heartbeatOf(b, p); h.Asked != presence.AskedKinds {
			t.Errorf("heartbeat says %q is asked, want %q", h.Asked, presence.AskedKinds)
		}
		if len(p.Log.Find("kind is paused; its running jobs continue")) != 1 {
			t.Error("the log does not say once that the kind is paused")
		}
		ask(b, func(d *control.Document, now time.Time) { d.PausedKinds["echo"] = control.Mark{At: now} })
		time.Sleep(20 * time.Second)
		before := b.Server.Counts()[storage.OpGetMessages]
		time.Sleep(10 * time.Minute)
		if claims := b.Server.Counts()[storage.OpGetMessages] - before; claims > 0 {
			t.Errorf("claims in 10 min of workers whose kinds are all paused = %d, want none", claims)
		}
		ask(b, func(d *control.Document, _ time.Time) { d.PausedKinds = nil })
		b.WaitDone("waits", 3*time.Minute)
	})
}

// TestQuarantine: the workers on a VM hand their jobs over and idle, also a worker that
// starts there later, and work again when the VM is freed. Another VM has the jobs.
func TestQuarantine(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.AddRecorder()
		work := &rig.Steps{N: 100, Each: time.Second}
		b.Put("long", "steps", "1")
		p := b.Start("vm_0", job.Kinds{"steps": work})
		time.Sleep(40 * time.Second)
		ask(b, func(d *control.Document, now time.Time) {
			d.Quarantine = map[string]control.Mark{"VM_0": {At: now, By: "me"}}
		})
		b.WaitFor("held", 20*time.Second, func() bool { return p.Position().Facts.Has(lifecycle.Held | lifecycle.WorkReleased) })
		if r := b.Record("long"); r.Status != checkpoint.Open || r.Failures != 0 {
			t.Errorf("record = %s, %d failures, want it open", r.Status, r.Failures)
		}
		p.Stop()
		p = b.Start("vm_0", job.Kinds{"steps": work})
		time.Sleep(time.Minute)
		if h := heartbeatOf(b, p); h.State != "shutdown" || h.Asked != presence.AskedQuarantine {
			t.Errorf("heartbeat after a restart = %s, %q is asked; want shutdown, quarantine", h.State, h.Asked)
		}
		b.Start("vm_1", job.Kinds{"steps": work})
		b.WaitDone("long", 5*time.Minute)
		if n := work.Repeated("long"); n != 0 {
			t.Errorf("%d steps were repeated, want none", n)
		}
		ask(b, func(d *control.Document, _ time.Time) { d.Quarantine = nil })
		time.Sleep(20 * time.Second)
		if h := heartbeatOf(b, p); h.State != "process" || h.Asked != "" {
			t.Errorf("heartbeat of a freed VM = %s, %q is asked; want process", h.State, h.Asked)
		}
	})
}

// TestControlNotRead: a worker that cannot read the control document keeps to its last
// version, logs that once, and follows it again later. A worker that starts so takes
// work.
func TestControlNotRead(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		ask(b, func(d *control.Document, now time.Time) { d.Pause = &control.Mark{At: now} })
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		time.Sleep(20 * time.Second)
		refuse := func(on bool) {
			b.Server.OnCall(func(c storage.Call) storage.Fault {
				if on && c.Container == b.Names.Control {
					return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch", Message: "no"}}
				}
				return storage.Fault{}
			})
		}
		refuse(true)
		b.Put("a", "echo", "1")
		time.Sleep(5 * time.Minute)
		if b.MessagesLeft() != 1 || len(p.Log.Find("control document not read; the worker keeps to what it read last, and does not learn of "+
			"cancels, drains and pauses")) != 1 {
			t.Error("the paused worker took a job, or did not log once that it cannot read the document")
		}
		q := b.Start("vm_1", job.Kinds{"echo": rig.Echo})
		b.WaitDone("a", time.Minute)
		if h := heartbeatOf(b, q); h.Steered {
			t.Errorf("heartbeat = %+v, want a worker that follows no document", h)
		}
		refuse(false)
		b.Put("b", "echo", "1")
		time.Sleep(20 * time.Second)
		ask(b, func(d *control.Document, _ time.Time) { d.Pause = nil })
		b.WaitDone("b", time.Minute)
	})
}

// TestDamagedDocument: a worker that finds the control document damaged keeps to its last
// version, and logs that once, also during an outage. It follows the repaired document,
// and stops a job that was cancelled in between.
func TestDamagedDocument(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		handler := newWaiting()
		b.Put("runs", "waits", "1")
		p := b.Start("vm_0", job.Kinds{"waits": handler})
		time.Sleep(time.Minute)
		ask(b, func(d *control.Document, now time.Time) { d.Pause = &control.Mark{At: now, By: "me"} })
		time.Sleep(time.Minute)

		failing := func(fails bool) {
			b.Server.OnCall(func(c storage.Call) storage.Fault {
				if fails && c.Container == b.Names.Control {
					return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
				}
				return storage.Fault{}
			})
		}
		failing(true)
		time.Sleep(time.Minute)
		failing(false)
		body := streaming.NopCloser(strings.NewReader(`{"v":1,"revision":1,"pau`))
		blob := b.Account(b.Server.Transport()).Container(b.Names.Control).NewBlockBlobClient("control")
		if _, err := blob.Upload(t.Context(), body, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		failing(true)
		time.Sleep(time.Minute)
		failing(false)
		b.Put("waits", "waits", "1")
		_, err := b.Records.Cancel(t.Context(), "runs", "me", "not needed", false)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n := handler.starts("waits"); n != 0 {
			t.Errorf("a paused worker started %d jobs while the document was damaged, want none", n)
		}
		const notRead = "control document not read; the worker keeps to what it read last, and does not learn of cancels, drains and pauses"
		if n := len(p.Log.Find(notRead)); n != 2 {
			t.Errorf("the log says %d times that the document is not read, want once for the outage and once for the damage", n)
		}
		if h := heartbeatOf(b, p); h.Asked != presence.AskedPause || h.Control != 1 {
			t.Errorf("heartbeat = %+v, want it paused by revision 1", h)
		}

		_, kept, err := b.Control.Repair(t.Context(), func(*control.Document, time.Time) (bool, error) { return false, nil })
		if err != nil || kept == "" {
			t.Fatalf("Repair = %q, %v, want the damaged document kept", kept, err)
		}
		b.WaitFor("cancelled job stopped", 30*time.Second, func() bool { stop, _ := handler.stopOf("runs"); return stop != nil })
		b.WaitFor("waiting job started", 30*time.Second, func() bool { return handler.starts("waits") == 1 })
		if n := len(p.Log.Find("control document is read again")); n != 1 {
			t.Errorf("the log says %d times that the document is read again, want once", n)
		}
	})
}
