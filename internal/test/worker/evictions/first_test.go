package evictions

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// oneSlot makes a worker run one job at once.
func oneSlot(c *worker.Config) { c.Concurrency = 1 }

// evictBeforeBacklog evicts the first worker while it runs the first of some jobs of 4 s, and starts
// another one. It returns the first worker, when that had released its job, and how many calls of each
// kind the drain cost.
func evictBeforeBacklog(b *rig.Bed, jobs int, work *rig.Steps, second ...func(*worker.Config)) (first *rig.Process, released time.Time,
	calls map[string]int64) {
	b.T.Helper()
	for i := range jobs {
		b.Put(fmt.Sprintf("job-%d", i), "steps", "")
	}
	first = b.Start("vm_0", job.Kinds{"steps": work}, oneSlot)
	b.WaitFor("half of the first job", 10*time.Second, func() bool { return work.Done("job-0") >= 4 })
	b.Server.ResetCounts()
	if _, err := b.Metadata.SimulateEviction("vm_0"); err != nil {
		b.T.Fatal(err)
	}
	b.WaitFor("the job is released", 3*time.Second, func() bool { return len(first.Log.Find("drained")) == 1 })
	released, calls = time.Now(), b.Server.Counts()
	first.Kill()
	b.Start("vm_1", job.Kinds{"steps": work}, append(second, oneSlot)...)
	return first, released, calls
}

// TestEvictedJobComesFirst: a job that is evicted before a long backlog is done next, and not after the
// backlog, with workers that are busy too. Without a backlog its message stays where it is.
func TestEvictedJobComesFirst(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		rec := b.AddRecorder()
		work := &rig.Steps{N: 8, Each: 500 * time.Millisecond}
		first, released, calls := evictBeforeBacklog(b, 200, work)
		if n := len(b.Server.Messages(b.Names.First)); n != 1 || calls[storage.OpGetQueueMetadata] > 1 {
			t.Errorf("messages on the queue First = %d after %d counts, want one of each", n, calls[storage.OpGetQueueMetadata])
		}
		if n := len(first.Log.Find("job put before the backlog")); n != 1 {
			t.Errorf("log lines about the move = %d, want 1", n)
		}
		b.WaitDone("job-0", time.Minute)
		took, left := time.Since(released), b.MessagesLeft()
		t.Logf("release to end before a backlog of 199 jobs: %s", took.Round(time.Millisecond))
		if took > 5*time.Second || left < 198 {
			t.Errorf("release to end = %s, with %d messages left; want 2 s of work and a poll, before the backlog", took, left)
		}
		if again, n := work.Repeated("job-0"), rec.OutcomesOf("job-0"); again != 0 || n != 1 {
			t.Errorf("%d steps repeated, %d outcomes, want none, one", again, n)
		}

		busy := b.Start("vm_2", job.Kinds{"steps": work}, oneSlot)
		time.Sleep(2 * time.Second)
		id := busy.Log.Find("job started")[0]["job_id"].(string)
		busy.Stop()
		stopped := time.Now()
		b.WaitDone(id, 20*time.Second)
		if took := time.Since(stopped); took > 10*time.Second {
			t.Errorf("release to end with a busy worker = %s, want its job of 4 s, and this one", took)
		}
	})
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 8, Each: 500 * time.Millisecond}
		evictBeforeBacklog(b, 1, work)
		if n := len(b.Server.Messages(b.Names.First)); n != 0 {
			t.Errorf("messages on the queue First without a backlog = %d, want none", n)
		}
		b.WaitDone("job-0", 10*time.Second)
	})
}

// TestNoQueueFirst: where the queue First is missing or refused, workers do without it: a line in the
// log, no call for each release, and an idle worker ends.
func TestNoQueueFirst(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		if _, err := b.Account(b.Server.Transport()).Queue(b.Names.First).Delete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int64
		b.Server.OnResult(func(r storage.Result) {
			if r.Queue == b.Names.First && r.Operation != storage.OpGetQueueMetadata { // but for metrics
				asked.Add(1)
			}
		})
		work := &rig.Steps{N: 8, Each: 500 * time.Millisecond}
		first, _, calls := evictBeforeBacklog(b, 20, work, func(c *worker.Config) { c.ExitWhenIdle = time.Minute })
		if n := len(b.Server.Messages(b.Names.Queue)); n != 20 || calls[storage.OpGetQueueMetadata] != 0 {
			t.Errorf("%d messages after %d counts of queues, want 20, none", n, calls[storage.OpGetQueueMetadata])
		}
		if n := len(first.Log.Find("queue cannot be used; released jobs wait behind the others, and urgent ones for this queue")); n != 1 {
			t.Errorf("log lines about the queue = %d, want 1", n)
		}
		b.WaitFor("all done", 2*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		done := time.Now()
		b.WaitFor("the idle worker ends", 2*time.Minute, func() bool {
			p, _, err := b.Workers.Read(t.Context(), "vm_1-11112222-0")
			return err == nil && p.State == "stopped"
		})
		if took := time.Since(done); took > time.Minute+5*time.Second || asked.Load() != 2 {
			t.Errorf("the idle worker ended after %s and %d claims from the queue First, want a minute, one of each worker", took, asked.Load())
		}
	})
}

// TestUrgentJobsLeaveRoom: of four claims three are from the queue First, and one from the queue of jobs.
// A worker without work finds an urgent job within seconds.
func TestUrgentJobsLeaveRoom(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		for i := range 30 {
			b.Put(fmt.Sprintf("usual-%d", i), "steps", "")
			b.PutOn(b.First, fmt.Sprintf("urgent-%d", i), "steps", "")
		}
		b.Start("vm_0", job.Kinds{"steps": &rig.Steps{N: 1, Each: time.Second}}, oneSlot)
		b.WaitFor("no urgent job is left", time.Minute, func() bool { return len(b.Server.Messages(b.Names.First)) == 0 })
		if done := 30 - len(b.Server.Messages(b.Names.Queue)); done < 9 || done > 11 {
			t.Errorf("usual jobs done beside 30 urgent ones = %d, want 10", done)
		}
		b.WaitFor("all done", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		time.Sleep(time.Minute)
		b.PutOn(b.First, "alone", "steps", "")
		b.WaitDone("alone", 4*time.Second)
	})
}
