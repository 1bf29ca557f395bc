package fleets

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/worker/intake"
	"github.com/spotworker/spotworker/job"
)

// fillBuffer starts a worker that runs a long job in each of its two slots and has
// claimed more messages than it has slots. It claims ahead because the echo jobs
// before the long ones were short.
func fillBuffer(b *rig.Bed, change ...func(*worker.Config)) *rig.Process {
	b.T.Helper()
	put := func(kind string, n int) {
		for i := range n {
			b.Put(fmt.Sprintf("%s-%d-%d", kind, i, len(b.Server.Messages(b.Names.Queue))), kind, "1")
		}
	}
	put("echo", 40)
	put("long", 2)
	put("echo", 20)
	long := &rig.Steps{N: 5000, Each: time.Second}
	p := b.Start("vm_0", job.Kinds{"echo": rig.Echo, "long": long}, append(change, func(c *worker.Config) { c.Concurrency = 2 })...)
	b.WaitFor("messages in the buffer", time.Minute, func() bool {
		started := p.Log.Find("job started")
		return len(started) == 42 && b.Hidden() > 10
	})
	return p
}

// TestStopWhileTheBufferIsReleased: a worker that is stopped while it
// releases the messages in its buffer releases all of them.
func TestStopWhileTheBufferIsReleased(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		p := fillBuffer(b, func(c *worker.Config) { c.Metadata = nil })
		var releasing atomic.Bool
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpUpdateMessage {
				releasing.Store(true)
			}
			return storage.Fault{Before: 300 * time.Millisecond}
		})
		b.WaitFor("releases", rig.BufferTime+time.Second, releasing.Load)
		p.Stop()
		if n := b.Hidden(); n > 0 {
			t.Errorf("messages hidden after the drain = %d, want none", n)
		}
	})
}

// TestStopDuringAClaim: a stop during a claim releases the messages of that claim.
func TestStopDuringAClaim(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		claiming := make(chan struct{})
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation != storage.OpGetMessages {
				return storage.Fault{}
			}
			if c.Queue == b.Names.Queue {
				close(claiming)
			}
			return storage.Fault{After: rig.GraceOfAClaim / 2}
		})
		for i := range 4 {
			b.Put(fmt.Sprintf("job-%d", i), "echo", "1")
		}
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, func(c *worker.Config) { c.Metadata = nil })
		<-claiming
		time.Sleep(time.Millisecond)
		if n := b.Hidden(); n != 4 {
			t.Fatalf("messages hidden while the claim is under way = %d, want 4", n)
		}
		p.Stop()
		if n, started := b.Hidden(), len(p.Log.Find("job started")); n > 0 || started > 0 || b.MessagesLeft() != 4 {
			t.Errorf("after the stop %d of %d messages are hidden, and %d jobs were started, want 0 of 4 and 0", n, b.MessagesLeft(), started)
		}
	})
}

// TestBufferWhenClaimingEnds: when claiming ends before NotBefore, messages that
// wait for a slot are released at once.
func TestBufferWhenClaimingEnds(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		p := fillBuffer(b)
		b.Announce("Reboot", rig.In(4*time.Minute))
		b.WaitFor("claiming ended", 2*time.Second, func() bool {
			return len(p.Log.Find("claiming ended; jobs that will not be done in time are handed over")) == 1
		})
		time.Sleep(time.Second)
		if n := b.Hidden(); n > 0 {
			t.Errorf("messages hidden a second after claiming ended = %d, want none", n)
		}
	})
}

// TestStopDuringManyClaims: a busy worker that is stopped while several claims are in
// flight releases their messages.
func TestStopDuringManyClaims(t *testing.T) {
	for _, after := range proof.Some(t, 1, []time.Duration{3 * time.Millisecond, 14 * time.Millisecond, 51 * time.Millisecond}) {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			for i := range 1000 {
				b.Put(fmt.Sprintf("job-%d", i), "echo", "1")
			}
			var inFlight, most atomic.Int64
			b.Server.OnCall(func(c storage.Call) storage.Fault {
				if c.Operation == storage.OpGetMessages {
					most.Store(max(most.Load(), inFlight.Add(1)))
					time.AfterFunc(100*time.Millisecond, func() { inFlight.Add(-1) })
					return storage.Fault{Before: 50 * time.Millisecond, After: 50 * time.Millisecond}
				}
				return storage.Fault{Before: 5 * time.Millisecond, After: 5 * time.Millisecond}
			})
			p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, func(c *worker.Config) { c.Metadata, c.Concurrency = nil, 128 })
			b.WaitFor("several claims", time.Minute, func() bool { return inFlight.Load() > 1 })
			time.Sleep(after)
			stopped := time.Now()
			p.Stop()
			if took := time.Since(stopped); took > time.Second {
				t.Errorf("drain took %s, want at most 1s", took)
			}
			if n := b.Hidden(); n > 0 || b.MessagesLeft() == 0 || most.Load() < 2 {
				t.Errorf("after the stop %d of %d messages are hidden, with up to %d claims in flight; want none hidden, some left, several claims",
					n, b.MessagesLeft(), most.Load())
			}
		})
	}
}

// TestNoHoarding: few jobs are shared among many workers, although each could do more
// alone. All have done jobs of a second before, and know how long they take.
func TestNoHoarding(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const workers, slots = 8, 4
		kinds := job.Kinds{"steps": &rig.Steps{N: 1, Each: time.Second}}
		for i := range workers {
			b.Start(fmt.Sprintf("vm_%d", i), kinds, rig.DiscardLog, func(c *worker.Config) { c.Concurrency = slots })
		}
		var begun time.Time
		for round := range 3 {
			time.Sleep(time.Minute)
			begun = time.Now()
			for i := range workers * slots {
				b.Put(fmt.Sprintf("job-%d-%d", round, i), "steps", "")
			}
			b.WaitFor("the round is done", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		}
		// A worker does one job a slot, and the jobs that it claims when these end: they
		// started together, so up to one for each slot, and 2 s of work. By then all
		// others have looked at the queue.
		const most = slots + slots + 2*slots
		if took, limit := time.Since(begun), intake.PollEvery*5/4+(1+(most-slots+slots-1)/slots)*time.Second+500*time.Millisecond; took > limit {
			t.Errorf("%d jobs on as many slots took %s, want at most %s", workers*slots, took, limit)
		}
		done := map[string]int{}
		for i := range workers * slots {
			done[b.Record(fmt.Sprintf("job-2-%d", i)).Owner]++
		}
		for worker, n := range done {
			if n > most {
				t.Errorf("jobs done by %s = %d, want at most %d", worker, n, most)
			}
		}
	})
}

// TestLongJobsAfterShortOnes: a worker that has claimed ahead because jobs were short
// holds few messages when long ones come, and leaves them to another one.
func TestLongJobsAfterShortOnes(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const slots, long = 64, 200
		for i := range 640 {
			b.Put(fmt.Sprintf("short-%d", i), "echo", "1")
		}
		for i := range long {
			b.Put(fmt.Sprintf("long-%d", i), "long", "")
		}
		latency(b, 10*time.Millisecond)
		kinds := job.Kinds{"echo": rig.Echo, "long": &rig.Steps{N: 60, Each: time.Second}}
		b.Start("vm_0", kinds, rig.DiscardLog, func(c *worker.Config) { c.Concurrency = slots })
		b.WaitFor("the short jobs are done", time.Minute, func() bool { return b.MessagesLeft() == long })
		time.Sleep(time.Second)
		// A round of the slots and two batches.
		if n, most := b.Hidden(), slots+slots+2*queue.MaxClaim; n > most {
			t.Errorf("messages that the worker holds = %d, want at most %d", n, most)
		}
		time.Sleep(rig.BufferTime)
		if n := b.Hidden(); n != slots {
			t.Errorf("messages that the worker holds %s later = %d, want one for each of its %d slots", rig.BufferTime, n, slots)
		}
	})
}
