package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// putInGroup puts a job as a producer does: the record first.
func putInGroup(t *testing.T, b *rig.Bed, id, kind, group string) {
	t.Helper()
	payload, err := queue.JSONPayload([]byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	e := queue.Envelope{ID: id, Kind: kind, Payload: payload, EnqueuedAt: time.Now(), Group: group, Resume: true}
	d := checkpoint.Delivery{ID: id, Kind: kind, PayloadHash: e.Work(), Group: group}
	if _, err := b.Records.Enlist(t.Context(), d, "producer"); err != nil {
		t.Fatal(err)
	}
	if err := b.Queue.Put(t.Context(), e, 0); err != nil {
		t.Fatal(err)
	}
}

// TestGroupJobCost: a short job of a group costs its worker a read of the record and a write
// that acquires it more than another job.
func TestGroupJobCost(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const jobs = 64
		for i := range jobs {
			putInGroup(t, b, fmt.Sprintf("job-%d", i), "echo", "night")
		}
		b.Server.ResetCounts()
		b.Start("vm_0", job.Kinds{"echo": rig.Echo}, func(c *worker.Config) { c.Concurrency = 32 })
		b.WaitFor("all jobs gone", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		counts := b.Server.Counts()
		for op, n := range map[string]int64{
			storage.OpDeleteMessage: jobs, storage.OpGetBlobProperties: jobs, storage.OpSetBlobMetadata: jobs, storage.OpUpdateMessage: 0,
		} {
			if counts[op] != n {
				t.Errorf("%s calls = %d, want %d", op, counts[op], n)
			}
		}
		if puts := counts[storage.OpPutBlob]; puts < jobs || puts > jobs+10 {
			t.Errorf("PutBlob calls = %d, want one a job and a few heartbeats", puts)
		}
		for i := range jobs {
			if r := b.Record(fmt.Sprintf("job-%d", i)); r.Status != checkpoint.Done || r.Group != "night" || r.Generation != 1 {
				t.Errorf("record of job-%d = %s in group %q after %d claims, want it done in its group after 1", i, r.Status, r.Group, r.Generation)
			}
		}
	})
}

// TestGroupIsRecorded: a record that was removed before the first delivery gets its group from
// the message. A deadline is judged from the first claim, and not from the put.
func TestGroupIsRecorded(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		putInGroup(t, b, "kept", "echo", "night")
		put := b.Record("kept").CreatedAt
		putInGroup(t, b, "removed", "echo", "night")
		if _, err := b.Records.Cancel(t.Context(), "removed", "spotctl", "for its removal", false); err != nil {
			t.Fatal(err)
		}
		r, err := b.Records.Read(t.Context(), "removed")
		if err == nil {
			err = b.Records.Remove(t.Context(), r)
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		b.WaitFor("all jobs gone", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if r := b.Record("removed"); r.Status != checkpoint.Done || r.Group != "night" {
			t.Errorf("record that was removed = %s in group %q, want it done in its group", r.Status, r.Group)
		}
		if r := b.Record("kept"); r.CreatedAt.Sub(put) < time.Hour {
			t.Errorf("the job began at %s, want the time of its first claim, an hour after %s", r.CreatedAt, put)
		}
	})
}
