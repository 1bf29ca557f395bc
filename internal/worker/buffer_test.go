package worker

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// fillBuffer starts a worker that runs a long job in each of its two slots and has
// claimed more messages than it has slots. It claims ahead because the echo jobs
// before the long ones were short.
func (b *testbed) fillBuffer(change ...func(*Config)) *process {
	b.t.Helper()
	put := func(kind string, n int) {
		for i := range n {
			b.put(fmt.Sprintf("%s-%d-%d", kind, i, len(b.server.Messages(b.names.Queue))), kind, "1")
		}
	}
	put("echo", 40)
	put("long", 2)
	put("echo", 20)
	long := &steps{n: 5000, each: time.Second}
	p := b.start("vm_0", job.Kinds{"echo": echo, "long": long}, append(change, func(c *Config) { c.Concurrency = 2 })...)
	b.waitFor("messages in the buffer", time.Minute, func() bool {
		started := p.log.find("job started")
		return len(started) == 42 && b.hidden() > 10
	})
	return p
}

// TestStopWhileTheBufferIsReleased: a worker that is stopped while it
// releases the messages in its buffer releases all of them.
func TestStopWhileTheBufferIsReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		p := b.fillBuffer(func(c *Config) { c.Metadata = nil })
		var releasing atomic.Bool
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpUpdateMessage {
				releasing.Store(true)
			}
			return storage.Fault{Before: 300 * time.Millisecond}
		})
		b.waitFor("releases", bufferedFor+time.Second, releasing.Load)
		p.stop()
		if n := b.hidden(); n > 0 {
			t.Errorf("messages hidden after the drain = %d, want none", n)
		}
	})
}

// TestStopDuringAClaim: a stop during a claim releases the messages of that claim.
func TestStopDuringAClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		claiming := make(chan struct{})
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation != storage.OpGetMessages {
				return storage.Fault{}
			}
			if len(b.server.Messages(b.names.Queue)) > 0 {
				close(claiming)
			}
			return storage.Fault{After: claimGrace / 2}
		})
		for i := range 4 {
			b.put(fmt.Sprintf("job-%d", i), "echo", "1")
		}
		p := b.start("vm_0", job.Kinds{"echo": echo}, func(c *Config) { c.Metadata = nil })
		<-claiming
		time.Sleep(time.Millisecond)
		if n := b.hidden(); n != 4 {
			t.Fatalf("messages hidden while the claim is under way = %d, want 4", n)
		}
		p.stop()
		if n, started := b.hidden(), len(p.log.find("job started")); n > 0 || started > 0 || b.messagesLeft() != 4 {
			t.Errorf("after the stop %d of %d messages are hidden, and %d jobs were started, want 0 of 4 and 0", n, b.messagesLeft(), started)
		}
	})
}

// TestBufferWhenClaimingEnds: when claiming ends before NotBefore, messages that
// wait for a slot are released at once.
func TestBufferWhenClaimingEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		p := b.fillBuffer()
		b.announce("Reboot", in(4*time.Minute))
		b.waitFor("claiming ended", 2*time.Second, func() bool {
			return len(p.log.find("claiming ended; jobs that will not be done in time are handed over")) == 1
		})
		time.Sleep(time.Second)
		if n := b.hidden(); n > 0 {
			t.Errorf("messages hidden a second after claiming ended = %d, want none", n)
		}
	})
}
