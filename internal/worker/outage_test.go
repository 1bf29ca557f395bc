package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/job"
)

// TestStorageOutage: storage is unavailable for longer than the visibility timeout;
// no job is cancelled, none is lost, and no failure is counted.
func TestStorageOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		work := &steps{n: 400, each: 300 * time.Millisecond}
		b.put("long", "steps", "")
		b.start("vm_0", job.Kinds{"steps": work})
		b.waitFor("a checkpoint", 20*time.Second, func() bool { return b.record("long").HasState() })
		b.server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropRequest: true} })
		time.Sleep(90 * time.Second)
		b.server.OnCall(nil)
		b.waitDone("long", 10*time.Minute)
		b.waitFor("message gone", 10*time.Minute, func() bool { return b.messagesLeft() == 0 })
		if r := b.record("long"); r.Generation != 1 || r.Failures != 0 {
			t.Errorf("record = generation %d, %d failures, want 1, 0: the job was not interrupted", r.Generation, r.Failures)
		}
		if got := work.repeated("long"); got != 0 {
			t.Errorf("steps repeated = %d, want 0", got)
		}
	})
}

// TestOwnMessageIsClaimedAgain: renewals fail for longer than the visibility timeout
// while claims succeed, so that a worker claims the message of a job that it runs.
// The job continues under the new claim.
func TestOwnMessageIsClaimedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		work := &steps{n: 400, each: 300 * time.Millisecond}
		b.put("long", "steps", "")
		p := b.start("vm_0", job.Kinds{"steps": work})
		b.waitFor("a checkpoint", 20*time.Second, func() bool { return b.record("long").HasState() })
		b.server.OnCall(func(c storage.Call) storage.Fault {
			return storage.Fault{DropRequest: c.Operation == storage.OpUpdateMessage}
		})
		time.Sleep(time.Minute)
		b.server.OnCall(nil)
		if m := b.server.Messages(b.names.Queue); len(m) != 1 || m[0].DequeueCount < 2 {
			t.Fatalf("messages = %+v, want one that was claimed again", m)
		}
		b.waitDone("long", 10*time.Minute)
		b.waitFor("message gone", 10*time.Minute, func() bool { return b.messagesLeft() == 0 })
		if n := len(p.log.find("job started")); n != 1 || b.record("long").Generation != 1 || work.repeated("long") != 0 {
			t.Errorf("job started %d times, generation %d, %d steps repeated, want 1, 1, 0: the job was not interrupted", n, b.record("long").Generation, work.repeated("long"))
		}
	})
}

// TestWarmUpWaits: a worker that storage refuses at its start logs that and retries.
func TestWarmUpWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		refused := &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch", Message: "no"}
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpGetQueueMetadata {
				return storage.Fault{Refuse: refused}
			}
			return storage.Fault{}
		})
		b.put("a", "echo", "1")
		p := b.start("vm_0", job.Kinds{"echo": echo})
		time.Sleep(time.Minute)
		if s := p.machine.State(); s != lifecycle.Start {
			t.Errorf("state while storage refuses = %s, want start", s)
		}
		tries, logged := p.log.find("storage is not ready; no job is lost, trying again"), 0
		for _, line := range tries {
			if line["level"] == "ERROR" {
				logged++
			}
		}
		if len(tries) < 3 || logged != 1 {
			t.Errorf("%d tries in a minute, %d of them logged as errors, want several and 1", len(tries), logged)
		}
		b.server.OnCall(nil)
		b.waitDone("a", time.Minute)
	})
}

// TestWarmUpChecksAtOnce: the checks of the storage take one round trip together. The
// one before them reads the heartbeat of the last run.
func TestWarmUpChecksAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		const latency = 10 * time.Millisecond
		b.server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: latency} })
		begun := time.Now()
		p := b.start("vm_0", job.Kinds{"echo": echo}, takeOnDemand)
		b.waitFor("process", time.Minute, func() bool { return p.machine.State() == lifecycle.Process })
		if took := time.Since(begun); took > 4*latency {
			t.Errorf("start with calls of %s took %s, want at most four calls in sequence", latency, took)
		}
	})
}

// TestWarmUpNamesOneFault: of several faults a worker reports the first in a fixed
// order, so that its log does not change from one try to the next.
func TestWarmUpNamesOneFault(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		account := b.account(b.server.Transport())
		for _, name := range []string{b.names.Payloads, b.names.Records} {
			if _, err := account.Container(name).Delete(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		p := b.start("vm_0", job.Kinds{"echo": echo})
		time.Sleep(time.Minute)
		found := p.log.find("storage is not ready; no job is lost, trying again")
		if len(found) < 3 {
			t.Fatalf("log lines in a minute = %d, want several", len(found))
		}
		for _, line := range found {
			if got := fmt.Sprint(line["error"]); !strings.HasPrefix(got, "reach the container of job records: ") {
				t.Errorf("error = %s, want the container of job records in each line", got)
			}
		}
	})
}

// TestLostMessage: a renewal that is refused stops the job. Its last state is saved,
// because the worker still owns the record.
func TestLostMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		causes := make(chan *job.Stop, 2)
		h := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: []byte(j.ID + " was here")})
			<-ctx.Done()
			causes <- job.StopOf(ctx)
			return nil, ctx.Err()
		})
		b.put("a", "h", "")
		b.start("vm_0", job.Kinds{"h": h})
		b.waitFor("a checkpoint", 20*time.Second, func() bool { return b.record("a").HasState() })
		if _, err := b.account(b.server.Transport()).Queue(b.names.Queue).ClearMessages(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		b.waitFor("release", time.Minute, func() bool { return b.record("a").Status == checkpoint.Open })
		if stop := <-causes; stop == nil || stop.Reason != job.Lost {
			t.Errorf("cause of the stop = %v, want a lost lease", stop)
		}
		if r := b.record("a"); r.Failures != 0 || r.Interruptions != 1 || r.StateSize == 0 {
			t.Errorf("record = %d failures, %d interruptions, %d bytes, want 0, 1 and its state", r.Failures, r.Interruptions, r.StateSize)
		}
	})
}

// TestTenUncleanExits: a job is dead-lettered after ten starts on which its worker
// exited uncleanly, and the other jobs of the worker are done.
func TestTenUncleanExits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		killer := job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
			<-ctx.Done()
			return nil, errors.New("killed")
		})
		work := &steps{n: 10, each: time.Second}
		b.put("killer", "killer", "")
		for _, id := range []string{"n1", "n2", "n3"} {
			b.put(id, "steps", "")
		}
		kinds := job.Kinds{"killer": killer, "steps": work}
		rounds := 0
		for ; b.record("killer").Status != checkpoint.Poison && rounds < 30; rounds++ {
			p := b.start("vm_0", kinds)
			end := time.Now().Add(2 * time.Minute)
			for time.Now().Before(end) && b.record("killer").Status != checkpoint.Poison {
				time.Sleep(100 * time.Millisecond)
				if started := p.log.find("job started"); hasJob(started, "killer") {
					time.Sleep(11 * time.Second) // long enough for a record
					break
				}
			}
			p.kill()
		}
		r := b.record("killer")
		if r.Status != checkpoint.Poison || r.ChargedExits != maxChargedExits {
			t.Fatalf("record after %d kills = %s, %d unclean exits, want poison, %d", rounds, r.Status, r.ChargedExits, maxChargedExits)
		}
		for _, id := range []string{"n1", "n2", "n3"} {
			if r := b.record(id); r.Status != checkpoint.Done {
				t.Errorf("job %s = %s, want done", id, r.Status)
			}
		}
	})
}

func hasJob(lines []logLine, id string) bool {
	for _, line := range lines {
		if line["job_id"] == id {
			return true
		}
	}
	return false
}

// TestBufferedMessagesAreReleased: messages claimed ahead are released when no slot
// gets free for them, and at once on a stop.
func TestBufferedMessagesAreReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		slow := &steps{n: 100, each: time.Second}
		for i := range 40 {
			b.put("quick-"+string(rune('a'+i%26))+string(rune('a'+i/26)), "echo", "1")
		}
		for _, id := range []string{"slow-1", "slow-2"} {
			b.put(id, "steps", "")
		}
		for i := range 20 {
			b.put("late-"+string(rune('a'+i)), "echo", "1")
		}
		p := b.start("vm_0", job.Kinds{"echo": echo, "steps": slow}, func(c *Config) { c.Concurrency = 2 })
		b.waitFor("slots taken", time.Minute, func() bool { return slow.done("slow-2") > 0 && slow.done("slow-1") > 0 })
		b.waitFor("buffer released", 15*time.Second, func() bool {
			visible := 0
			for _, m := range b.server.Messages(b.names.Queue) {
				if m.Visible {
					visible++
				}
			}
			return visible == b.messagesLeft()-2
		})
		p.stop()
		b.start("vm_1", job.Kinds{"echo": echo, "steps": slow})
		b.waitFor("all done", 10*time.Minute, func() bool { return b.messagesLeft() == 0 })
		if got := slow.repeated("slow-1") + slow.repeated("slow-2"); got != 0 {
			t.Errorf("steps repeated = %d, want 0", got)
		}
	})
}

// TestDrainWithoutBandwidth: a state that cannot be sent in time is left out, and the
// job is still released within the budget.
func TestDrainWithoutBandwidth(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		work := &steps{n: 1000, each: 300 * time.Millisecond}
		b.put("long", "steps", "")
		p := b.start("vm_0", job.Kinds{"steps": work})
		b.waitFor("a checkpoint", 20*time.Second, func() bool { return b.record("long").HasState() })
		saved := b.record("long")
		time.Sleep(2 * time.Second) // so that there is more to save
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutBlob && c.Container == b.names.Records {
				return storage.Fault{Before: time.Minute}
			}
			return storage.Fault{}
		})
		asked := time.Now()
		p.stop()
		if took := time.Since(asked); took > 10*time.Second+lastWrite {
			t.Errorf("SIGTERM to exit = %s, want within the budget of 10s", took)
		}
		r := b.record("long")
		if r.Status != checkpoint.Open || r.Interruptions != 1 || r.StateHash != saved.StateHash {
			t.Errorf("record = %s, %d interruptions, state kept: %t, want open, 1, the checkpoint before", r.Status, r.Interruptions, r.StateHash == saved.StateHash)
		}
		released := p.log.find("job released")
		if len(released) != 1 || released[0]["state_left_out"] != true {
			t.Errorf("log = %v, want one release with state_left_out", released)
		}
		if m := b.server.Messages(b.names.Queue); len(m) != 1 || !m[0].Visible {
			t.Errorf("messages = %+v, want one that is visible", m)
		}
	})
}
