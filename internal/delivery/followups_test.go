package delivery_test

import (
	"context"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// TestFollowUpInAnOutage: the record of a job names a follow-up job only when that is on its queue. The job is released,
// and tries again later.
func TestFollowUpInAnOutage(t *testing.T) {
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		j.Report(job.Progress{State: []byte("s")})
		_, err := j.Put(ctx, job.FollowUp{Name: "x", Kind: "child"})
		return nil, err
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		lease := b.claim()
		end := b.down(func(c storage.Call) bool { return c.Operation == storage.OpPutMessage })
		b.begin(lease)()
		end()
		r := b.Record("a")
		if names, _ := r.FollowUps.IDs(); len(names) != 0 || r.Status != checkpoint.Open || r.FailuresTotal != 0 || b.MessagesLeft() != 1 {
			t.Fatalf("record = %s after %d failures with the follow-up jobs %v, %d messages; want it open without any", r.Status, r.FailuresTotal,
				names, b.MessagesLeft())
		}
		b.WaitFor("the message", time.Hour, func() bool { return b.visible() == 1 })
		b.runOne()
		if names, _ := b.Record("a").FollowUps.IDs(); len(names) != 1 || b.Record("a").Status != checkpoint.Done || b.MessagesLeft() != 1 {
			t.Errorf("record = %s with the follow-up jobs %v, %d messages; want it done with one", b.Record("a").Status, names, b.MessagesLeft())
		}
	})
}
