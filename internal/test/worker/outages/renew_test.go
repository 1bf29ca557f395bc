package outages

import (
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/worker/intake"
	"github.com/spotworker/spotworker/job"
)

// onRenewals injects the fault f into the first n renewals, and returns the times at
// which all renewals were sent.
func onRenewals(b *rig.Bed, n int, f storage.Fault) *[]time.Time {
	var sent []time.Time
	b.Server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation != storage.OpUpdateMessage {
			return storage.Fault{}
		}
		if sent = append(sent, time.Now()); len(sent) <= n {
			return f
		}
		return storage.Fault{}
	})
	return &sent
}

// TestRenewalWithoutAnswerIsRetried: a renewal without an answer is retried after
// renewRetry, long before the message becomes visible.
func TestRenewalWithoutAnswerIsRetried(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		sent := onRenewals(b, 2, storage.Fault{DropRequest: true})
		b.Put("long", "steps", "")
		b.Start("vm_0", job.Kinds{"steps": &rig.Steps{N: 40, Each: time.Second}})
		b.WaitDone("long", time.Minute)
		if len(*sent) < 4 {
			t.Fatalf("renewals = %d, want at least 4", len(*sent))
		}
		for i := range 2 {
			if gap := (*sent)[i+1].Sub((*sent)[i]); gap > rig.RenewRetry+50*time.Millisecond {
				t.Errorf("renewal %d, after one without an answer, came %s later, want %s", i+2, gap, rig.RenewRetry)
			}
		}
		if r := b.Record("long"); r.Generation != 1 || r.Interruptions != 0 {
			t.Errorf("record = generation %d, %d interruptions, want one run", r.Generation, r.Interruptions)
		}
	})
}

// TestRenewalReplyLost: a renewal takes effect and its reply is lost, so that the
// pop receipt is void. The job runs until shortly before its message becomes visible
// again, is released then, and resumes at once.
func TestRenewalReplyLost(t *testing.T) {
	for _, row := range []struct {
		name       string
		visibility time.Duration
	}{{"usual visibility", rig.DefaultVisibility}, {"shortest visibility", rig.MinVisibility}, {"as under throttling", rig.MaxVisibility}} {
		t.Run(row.name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				sent := onRenewals(b, 1, storage.Fault{DropReply: true})
				work := &rig.Steps{N: int(2 * row.visibility / time.Second), Each: time.Second}
				b.Put("long", "steps", "")
				p := b.Start("vm_0", job.Kinds{"steps": work}, func(c *worker.Config) { c.Visibility = row.visibility })
				b.WaitFor("release", 2*row.visibility, func() bool { return len(p.Log.Find("job released")) == 1 })
				visible := (*sent)[0].Add(row.visibility)
				margin := min(row.visibility/rig.LostShare, drain.OneJobGrace)
				if left := time.Until(visible); left < 0 || left > margin {
					t.Errorf("released %s before the message becomes visible, want 0 to %s", left, margin)
				}
				if r := b.Record("long"); r.Status != checkpoint.Open || r.Failures != 0 {
					t.Errorf("record = %s, %d failures, want open, 0", r.Status, r.Failures)
				}
				b.WaitFor("the next delivery", margin+2*intake.LongestPoll, func() bool { return len(p.Log.Find("job started")) == 2 })
				b.WaitDone("long", 3*row.visibility)
				if n := work.Repeated("long"); n != 0 {
					t.Errorf("steps repeated = %d, want 0", n)
				}
				if n := len(p.Log.Find("message lost; stopping the job")); n != 1 {
					t.Errorf("messages lost = %d, want 1", n)
				}
			})
		})
	}
}

// TestRenewalReplyLostAtTheEnd: a job that ends while its pop receipt is void is
// committed, and its message is deleted when it becomes visible again.
func TestRenewalReplyLostAtTheEnd(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		onRenewals(b, 1, storage.Fault{DropReply: true})
		b.Put("long", "steps", "")
		p := b.Start("vm_0", job.Kinds{"steps": &rig.Steps{N: 20, Each: time.Second}})
		b.WaitDone("long", 25*time.Second)
		b.WaitFor("no message left", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if r := b.Record("long"); r.Generation != 1 || r.Interruptions != 0 || len(p.Log.Find("message lost; stopping the job")) != 0 {
			t.Errorf("record = generation %d, %d interruptions, want one uninterrupted run", r.Generation, r.Interruptions)
		}
	})
}

// TestNoWarningForARenewalInADrain: once a job has to stop its message is released soon, so
// a renewal that fails until then is no warning. Before the stop it is one.
func TestNoWarningForARenewalInADrain(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var mu sync.Mutex
		refusing, slow, refused := false, false, 0
		refuse := func(on bool) {
			mu.Lock()
			defer mu.Unlock()
			refusing, refused = on, 0
		}
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case refusing && c.Operation == storage.OpUpdateMessage && refused < 2:
				refused++
				return storage.Fault{Refuse: &storage.Error{Status: 400, Code: "OutOfRangeQueryParameterValue"}}
			case slow && c.Container == b.Names.Records:
				return storage.Fault{Before: 3 * time.Second} // the last state takes its time
			}
			return storage.Fault{}
		})
		work := &rig.Steps{N: 100, Each: time.Second}
		b.Put("long", "steps", "")
		p := b.Start("vm_0", job.Kinds{"steps": work}, func(c *worker.Config) { c.Visibility = rig.MinVisibility })
		warned := func() (n int) {
			for _, line := range p.Log.Find("message not renewed; trying again") {
				if line["level"] == "WARN" {
					n++
				}
			}
			return n
		}
		b.WaitFor("some work", 20*time.Second, func() bool { return work.Done("long") >= 3 })
		refuse(true)
		b.WaitFor("a warning", 10*time.Second, func() bool { return warned() > 0 })
		refuse(false)
		time.Sleep(5 * time.Second)
		before := warned()
		mu.Lock()
		slow = true
		mu.Unlock()
		if _, err := b.Metadata.SimulateEviction("vm_0"); err != nil {
			t.Fatal(err)
		}
		b.WaitFor("shutdown", 2*time.Second, func() bool { return p.Position().State == lifecycle.Shutdown })
		refuse(true)
		b.WaitFor("the end of the drain", 20*time.Second, func() bool { return len(p.Log.Find("drained")) == 1 })
		mu.Lock()
		defer mu.Unlock()
		if got := warned() - before; got != 0 || refused == 0 {
			t.Errorf("%d warnings in the drain with %d renewals refused, want none with some", got, refused)
		}
	})
}
