package jobs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// TestShortJobCost is promise 7: a short job costs 2 + 1/32 storage calls, and a
// first delivery reads no record.
func TestShortJobCost(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const jobs = 32 * 20
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "echo", "1")
		}
		b.Server.ResetCounts()
		b.Start("vm_0", job.Kinds{"echo": rig.Echo}, func(c *worker.Config) { c.Concurrency = 32 })
		b.WaitFor("all jobs gone", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		counts := b.Server.Counts()

		// The others are warm-up, heartbeats, and claims from the empty queue. At its start a
		// worker reads its last heartbeat and the control document.
		want := map[string]int64{"DeleteMessage": jobs, "GetBlob": 2, "GetBlobProperties": 0, "UpdateMessage": 0, "SetBlobMetadata": 0}
		for op, n := range want {
			if counts[op] != n {
				t.Errorf("%s calls = %d, want %d", op, counts[op], n)
			}
		}
		records := 0
		for _, blob := range b.Server.Blobs(b.Names.Records) {
			if blob.Committed {
				records++
			}
		}
		heartbeats := int64(len(b.Server.Blobs(b.Names.Workers)))
		if puts := counts["PutBlob"]; records != jobs || puts < jobs+heartbeats || puts > jobs+10 {
			t.Errorf("PutBlob calls = %d for %d records, want one each and a few heartbeats", puts, records)
		}
		// One claim is from the queue First, some find queues empty, and one that comes while the
		// last of 32 jobs still end takes fewer than 32.
		if claims := counts["GetMessages"]; claims <= jobs/32 || claims > jobs/32+8 {
			t.Errorf("GetMessages calls = %d, want %d, and eight more at most", claims, jobs/32)
		}
	})
}

// TestLongJobIsSeenAndSaved: a running job has a record with its progress and state
// within seconds, and its message is renewed every 10 s.
func TestLongJobIsSeenAndSaved(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 60, Each: time.Second}
		b.Put("long", "steps", "")
		b.Start("vm_0", job.Kinds{"steps": work})
		b.WaitFor("first checkpoint", 10*time.Second, func() bool { return b.Record("long").HasState() })
		r := b.Record("long")
		if r.Status != checkpoint.Running || r.Fraction == 0 || r.Text == "" || !r.Progressed {
			t.Errorf("record while running = %+v, want status running with progress", r)
		}
		b.WaitDone("long", 2*time.Minute)
		if got := b.Server.Counts()["UpdateMessage"]; got < 5 || got > 6 {
			t.Errorf("renewals in 60 s = %d, want one every 10 s", got)
		}
		if got := work.Repeated("long"); got != 0 {
			t.Errorf("steps repeated = %d, want 0", got)
		}
	})
}

// TestQuietJobIsSeen: a job that reports nothing gets its record after 10 s.
func TestQuietJobIsSeen(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		quiet := job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
			time.Sleep(30 * time.Second)
			return nil, nil
		})
		b.Put("quiet", "quiet", "")
		b.Start("vm_0", job.Kinds{"quiet": quiet})
		b.WaitFor("record", 12*time.Second, func() bool { return b.Record("quiet").Status == checkpoint.Running })
		b.WaitDone("quiet", time.Minute)
	})
}
