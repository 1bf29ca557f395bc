package outages

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// TestStorageOutage: storage is unavailable for longer than the visibility timeout;
// no job is cancelled, none is lost, and no failure is counted.
func TestStorageOutage(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 400, Each: 300 * time.Millisecond}
		b.Put("long", "steps", "")
		b.Start("vm_0", job.Kinds{"steps": work})
		b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("long").HasState() })
		b.Server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropRequest: true} })
		time.Sleep(90 * time.Second)
		b.Server.OnCall(nil)
		b.WaitDone("long", 10*time.Minute)
		b.WaitFor("message gone", 10*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if r := b.Record("long"); r.Generation != 1 || r.Failures != 0 {
			t.Errorf("record = generation %d, %d failures, want 1, 0: the job was not interrupted", r.Generation, r.Failures)
		}
		if got := work.Repeated("long"); got != 0 {
			t.Errorf("steps repeated = %d, want 0", got)
		}
	})
}

// TestOwnMessageIsClaimedAgain: renewals fail for longer than the visibility timeout
// while claims succeed, so that a worker claims the message of a job that it runs.
// The job continues under the new claim.
func TestOwnMessageIsClaimedAgain(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 400, Each: 300 * time.Millisecond}
		b.Put("long", "steps", "")
		p := b.Start("vm_0", job.Kinds{"steps": work})
		b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("long").HasState() })
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			return storage.Fault{DropRequest: c.Operation == storage.OpUpdateMessage}
		})
		time.Sleep(time.Minute)
		b.Server.OnCall(nil)
		if m := b.Server.Messages(b.Names.Queue); len(m) != 1 || m[0].DequeueCount < 2 {
			t.Fatalf("messages = %+v, want one that was claimed again", m)
		}
		b.WaitDone("long", 10*time.Minute)
		b.WaitFor("message gone", 10*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if n := len(p.Log.Find("job started")); n != 1 || b.Record("long").Generation != 1 || work.Repeated("long") != 0 {
			t.Errorf("job started %d times, generation %d, %d steps repeated, want 1, 1, 0: the job was not interrupted", n,
				b.Record("long").Generation, work.Repeated("long"))
		}
	})
}

// TestWarmUpWaits: a worker that storage refuses at its start logs that and retries.
func TestWarmUpWaits(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		refused := &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch", Message: "no"}
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpGetQueueMetadata {
				return storage.Fault{Refuse: refused}
			}
			return storage.Fault{}
		})
		b.Put("a", "echo", "1")
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		time.Sleep(time.Minute)
		if s := p.Position().State; s != lifecycle.Start {
			t.Errorf("state while storage refuses = %s, want start", s)
		}
		tries, logged := p.Log.Find("storage is not ready; no job is lost, trying again"), 0
		for _, line := range tries {
			if line["level"] == "ERROR" {
				logged++
			}
		}
		if len(tries) < 3 || logged != 1 {
			t.Errorf("%d tries in a minute, %d of them logged as errors, want several and 1", len(tries), logged)
		}
		b.Server.OnCall(nil)
		b.WaitDone("a", time.Minute)
	})
}

// TestWarmUpChecksAtOnce: a worker claims after two round trips. The checks of the storage are
// the first, the heartbeat of the last run and the control document the second.
func TestWarmUpChecksAtOnce(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const latency = 10 * time.Millisecond
		begun, claimed := time.Now(), make(chan time.Duration, 100)
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpGetMessages {
				claimed <- time.Since(begun)
			}
			return storage.Fault{Before: latency}
		})
		b.Start("vm_0", job.Kinds{"echo": rig.Echo}, rig.TakeOnDemand)
		if took := <-claimed; took < latency || took >= 3*latency {
			t.Errorf("start to first claim with calls of %s took %s, want two calls in sequence", latency, took)
		}
	})
}

// TestWarmUpNamesOneFault: of several faults a worker reports the first in a fixed
// order, so that its log does not change from one try to the next.
func TestWarmUpNamesOneFault(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		account := b.Account(b.Server.Transport())
		for _, name := range []string{b.Names.Payloads, b.Names.Records} {
			if _, err := account.Container(name).Delete(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		time.Sleep(time.Minute)
		found := p.Log.Find("storage is not ready; no job is lost, trying again")
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
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		causes := make(chan *job.Stop, 2)
		h := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: []byte(j.ID + " was here")})
			<-ctx.Done()
			causes <- job.StopOf(ctx)
			return nil, ctx.Err()
		})
		b.Put("a", "h", "")
		b.Start("vm_0", job.Kinds{"h": h})
		b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("a").HasState() })
		if _, err := b.Account(b.Server.Transport()).Queue(b.Names.Queue).ClearMessages(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		// The record may be open for a moment only: the worker puts a message in place of
		// the lost one, and may claim it at once.
		b.WaitFor("release", time.Minute, func() bool { return b.Record("a").Interruptions > 0 })
		if stop := <-causes; stop == nil || stop.Reason != job.Lost {
			t.Errorf("cause of the stop = %v, want a lost lease", stop)
		}
		if r := b.Record("a"); r.Failures != 0 || r.Interruptions != 1 || r.StateSize == 0 {
			t.Errorf("record = %d failures, %d interruptions, %d bytes, want 0, 1 and its state", r.Failures, r.Interruptions, r.StateSize)
		}
	})
}

// TestTenUncleanExits: a job is dead-lettered after ten starts on which its worker
// exited uncleanly, and the other jobs of the worker are done.
func TestTenUncleanExits(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		killer := job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
			<-ctx.Done()
			return nil, errors.New("killed")
		})
		work := &rig.Steps{N: 10, Each: time.Second}
		b.Put("killer", "killer", "")
		for _, id := range []string{"n1", "n2", "n3"} {
			b.Put(id, "steps", "")
		}
		kinds := job.Kinds{"killer": killer, "steps": work}
		rounds := 0
		for ; b.Record("killer").Status != checkpoint.Poison && rounds < 30; rounds++ {
			p := b.Start("vm_0", kinds)
			end := time.Now().Add(2 * time.Minute)
			for time.Now().Before(end) && b.Record("killer").Status != checkpoint.Poison {
				time.Sleep(100 * time.Millisecond)
				if started := p.Log.Find("job started"); hasJob(started, "killer") {
					time.Sleep(11 * time.Second) // long enough for a record
					break
				}
			}
			p.Kill()
		}
		r := b.Record("killer")
		if r.Status != checkpoint.Poison || r.ChargedExits != rig.MaxChargedExits {
			t.Fatalf("record after %d kills = %s, %d unclean exits, want poison, %d", rounds, r.Status, r.ChargedExits, rig.MaxChargedExits)
		}
		for _, id := range []string{"n1", "n2", "n3"} {
			if r := b.Record(id); r.Status != checkpoint.Done {
				t.Errorf("job %s = %s, want done", id, r.Status)
			}
		}
	})
}

func hasJob(lines []rig.Line, id string) bool {
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
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		slow := &rig.Steps{N: 100, Each: time.Second}
		for i := range 40 {
			b.Put("quick-"+string(rune('a'+i%26))+string(rune('a'+i/26)), "echo", "1")
		}
		for _, id := range []string{"slow-1", "slow-2"} {
			b.Put(id, "steps", "")
		}
		for i := range 20 {
			b.Put("late-"+string(rune('a'+i)), "echo", "1")
		}
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo, "steps": slow}, func(c *worker.Config) { c.Concurrency = 2 })
		b.WaitFor("slots taken", time.Minute, func() bool { return slow.Done("slow-2") > 0 && slow.Done("slow-1") > 0 })
		b.WaitFor("buffer released", 15*time.Second, func() bool {
			visible := 0
			for _, m := range b.Server.Messages(b.Names.Queue) {
				if m.Visible {
					visible++
				}
			}
			return visible == b.MessagesLeft()-2
		})
		p.Stop()
		b.Start("vm_1", job.Kinds{"echo": rig.Echo, "steps": slow})
		b.WaitFor("all done", 10*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if got := slow.Repeated("slow-1") + slow.Repeated("slow-2"); got != 0 {
			t.Errorf("steps repeated = %d, want 0", got)
		}
	})
}

// TestDrainWithoutBandwidth: a state that cannot be sent in time is left out, and the
// job is still released within the budget.
func TestDrainWithoutBandwidth(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 1000, Each: 300 * time.Millisecond}
		b.Put("long", "steps", "")
		p := b.Start("vm_0", job.Kinds{"steps": work})
		b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("long").HasState() })
		saved := b.Record("long")
		time.Sleep(2 * time.Second) // so that there is more to save
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutBlob && c.Container == b.Names.Records {
				return storage.Fault{Before: time.Minute}
			}
			return storage.Fault{}
		})
		asked := time.Now()
		p.Stop()
		if took := time.Since(asked); took > 10*time.Second+rig.HeartbeatWrite {
			t.Errorf("SIGTERM to exit = %s, want within the budget of 10s", took)
		}
		r := b.Record("long")
		if r.Status != checkpoint.Open || r.Interruptions != 1 || r.StateHash != saved.StateHash {
			t.Errorf("record = %s, %d interruptions, state kept: %t, want open, 1, the checkpoint before", r.Status, r.Interruptions,
				r.StateHash == saved.StateHash)
		}
		released := p.Log.Find("job released")
		if len(released) != 1 || released[0]["state_left_out"] != true {
			t.Errorf("log = %v, want one release with state_left_out", released)
		}
		if m := b.Server.Messages(b.Names.Queue); len(m) != 1 || !m[0].Visible {
			t.Errorf("messages = %+v, want one that is visible", m)
		}
	})
}

// TestSaveOutlastsANotice warns once of a state that an eviction would lose.
func TestSaveOutlastsANotice(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutBlob && c.Container == b.Names.Records {
				return storage.Fault{Before: 6 * time.Second}
			}
			return storage.Fault{}
		})
		b.Put("long", "steps", "")
		p := b.Start("vm_0", job.Kinds{"steps": &rig.Steps{N: 1000, Each: 300 * time.Millisecond}})
		const warning = "a checkpoint takes longer to save than an eviction leaves for it: the one before would stand"
		b.WaitFor("a warning", 5*time.Minute, func() bool { return len(p.Log.Find(warning)) > 0 })
		time.Sleep(time.Minute)
		lines := p.Log.Find(warning)
		p.Stop()
		if len(lines) != 1 || lines[0]["bytes"] == nil || lines[0]["took"] == nil {
			t.Errorf("log = %v, want one warning with the state's size and time", lines)
		}
	})
}

// takesLong is a handler that needs 3 s to take a state.
type takesLong struct{ *rig.Steps }

func (h takesLong) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	job.ControlOf(j).SaveInterval(3 * time.Second)
	return h.Steps.Run(ctx, j)
}

// TestTakingCountsAsHandOver: a hand-over takes as long as it takes to take the state and to send
// it. The heartbeat has the time, and it alone may be more than an eviction leaves.
func TestTakingCountsAsHandOver(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutBlob && c.Container == b.Names.Records {
				return storage.Fault{Before: 2500 * time.Millisecond}
			}
			return storage.Fault{}
		})
		b.Put("long", "steps", "")
		p := b.Start("vm_0", job.Kinds{"steps": takesLong{&rig.Steps{N: 1000, Each: 300 * time.Millisecond}}})
		b.WaitFor("a warning", 5*time.Minute, func() bool {
			return len(p.Log.Find("a checkpoint takes longer to save than an eviction leaves for it: the one before would stand")) > 0
		})
		time.Sleep(time.Minute)
		desk, err := client.Open(client.Options{
			ConnectionString: b.Server.ConnectionString(), Transport: b.Server.Transport(), Prefix: "test", Name: "test@desk",
		})
		if err != nil {
			t.Fatal(err)
		}
		live, err := desk.Live(t.Context(), "long")
		if err != nil || live.Job.HandOver < 5500*time.Millisecond || live.Job.HandOver > 6*time.Second {
			t.Errorf("hand-over = %s, %v, want 3 s and 2.5 s", live.Job.HandOver, err)
		}
		p.Stop()
	})
}
