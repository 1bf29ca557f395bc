package worker

import (
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/job"
)

// onRenewals injects the fault f into the first n renewals, and returns the times at
// which all renewals were sent.
func (b *testbed) onRenewals(n int, f storage.Fault) *[]time.Time {
	var sent []time.Time
	b.server.OnCall(func(c storage.Call) storage.Fault {
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
	inBubble(t, func(t *testing.T, b *testbed) {
		sent := b.onRenewals(2, storage.Fault{DropRequest: true})
		b.put("long", "steps", "")
		b.start("vm_0", job.Kinds{"steps": &steps{n: 40, each: time.Second}})
		b.waitDone("long", time.Minute)
		if len(*sent) < 4 {
			t.Fatalf("renewals = %d, want at least 4", len(*sent))
		}
		for i := range 2 {
			if gap := (*sent)[i+1].Sub((*sent)[i]); gap > renewRetry+50*time.Millisecond {
				t.Errorf("renewal %d, after one without an answer, came %s later, want %s", i+2, gap, renewRetry)
			}
		}
		if r := b.record("long"); r.Generation != 1 || r.Interruptions != 0 {
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
	}{{"usual visibility", defaultVisibility}, {"shortest visibility", minVisibility}, {"as under throttling", maxVisibility}} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *testbed) {
				sent := b.onRenewals(1, storage.Fault{DropReply: true})
				work := &steps{n: int(2 * row.visibility / time.Second), each: time.Second}
				b.put("long", "steps", "")
				p := b.start("vm_0", job.Kinds{"steps": work}, func(c *Config) { c.Visibility = row.visibility })
				b.waitFor("release", 2*row.visibility, func() bool { return len(p.log.find("job released")) == 1 })
				visible := (*sent)[0].Add(row.visibility)
				margin := min(row.visibility/lostShare, drain.OneJobGrace)
				if left := time.Until(visible); left < 0 || left > margin {
					t.Errorf("released %s before the message becomes visible, want 0 to %s", left, margin)
				}
				if r := b.record("long"); r.Status != checkpoint.Open || r.Failures != 0 {
					t.Errorf("record = %s, %d failures, want open, 0", r.Status, r.Failures)
				}
				b.waitFor("the next delivery", margin+2*longestPoll, func() bool { return len(p.log.find("job started")) == 2 })
				b.waitDone("long", 3*row.visibility)
				if n := work.repeated("long"); n != 0 {
					t.Errorf("steps repeated = %d, want 0", n)
				}
				if n := len(p.log.find("message lost; stopping the job")); n != 1 {
					t.Errorf("messages lost = %d, want 1", n)
				}
			})
		})
	}
}

// TestRenewalReplyLostAtTheEnd: a job that ends while its pop receipt is void is
// committed, and its message is deleted when it becomes visible again.
func TestRenewalReplyLostAtTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.onRenewals(1, storage.Fault{DropReply: true})
		b.put("long", "steps", "")
		p := b.start("vm_0", job.Kinds{"steps": &steps{n: 20, each: time.Second}})
		b.waitDone("long", 25*time.Second)
		b.waitFor("no message left", time.Minute, func() bool { return b.messagesLeft() == 0 })
		if r := b.record("long"); r.Generation != 1 || r.Interruptions != 0 || len(p.log.find("message lost; stopping the job")) != 0 {
			t.Errorf("record = generation %d, %d interruptions, want one uninterrupted run", r.Generation, r.Interruptions)
		}
	})
}

// TestNoWarningForARenewalInADrain: once a job has to stop its message is released soon, so
// a renewal that fails until then is no warning. Before the stop it is one.
func TestNoWarningForARenewalInADrain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		var mu sync.Mutex
		refusing, slow, refused := false, false, 0
		refuse := func(on bool) {
			mu.Lock()
			defer mu.Unlock()
			refusing, refused = on, 0
		}
		b.server.OnCall(func(c storage.Call) storage.Fault {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case refusing && c.Operation == storage.OpUpdateMessage && refused < 2:
				refused++
				return storage.Fault{Refuse: &storage.Error{Status: 400, Code: "OutOfRangeQueryParameterValue"}}
			case slow && c.Container == b.names.Records:
				return storage.Fault{Before: 3 * time.Second} // the last state takes its time
			}
			return storage.Fault{}
		})
		work := &steps{n: 100, each: time.Second}
		b.put("long", "steps", "")
		p := b.start("vm_0", job.Kinds{"steps": work}, func(c *Config) { c.Visibility = minVisibility })
		warned := func() (n int) {
			for _, line := range p.log.find("message not renewed; trying again") {
				if line["level"] == "WARN" {
					n++
				}
			}
			return n
		}
		b.waitFor("some work", 20*time.Second, func() bool { return work.done("long") >= 3 })
		refuse(true)
		b.waitFor("a warning", 10*time.Second, func() bool { return warned() > 0 })
		refuse(false)
		time.Sleep(5 * time.Second)
		before := warned()
		mu.Lock()
		slow = true
		mu.Unlock()
		if _, err := b.metadata.SimulateEviction("vm_0"); err != nil {
			t.Fatal(err)
		}
		b.waitFor("shutdown", 2*time.Second, func() bool { return p.machine.State() == lifecycle.Shutdown })
		refuse(true)
		b.waitFor("the end of the drain", 20*time.Second, func() bool { return len(p.log.find("drained")) == 1 })
		mu.Lock()
		defer mu.Unlock()
		if got := warned() - before; got != 0 || refused == 0 {
			t.Errorf("%d warnings in the drain with %d renewals refused, want none with some", got, refused)
		}
	})
}
