package delivery_test

import (
	"context"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// TestJobsWithoutARecord: a job of an idempotent kind ends without a record, unless it has a result, an output, a payload in a blob,
// a producer that waits for it, or a record already.
func TestJobsWithoutARecord(t *testing.T) {
	type run = func(ctx context.Context, j *job.Job) ([]byte, error)
	nothing := func(context.Context, *job.Job) ([]byte, error) { return nil, nil }
	put := func(e queue.Envelope) func(b *bench) {
		return func(b *bench) { e.ID, e.Kind = "a", "k"; b.put(e) }
	}
	for name, row := range map[string]struct {
		run    run
		put    func(b *bench)
		record bool
	}{
		"nothing":  {nothing, put(queue.Envelope{}), false},
		"a result": {func(context.Context, *job.Job) ([]byte, error) { return []byte("r"), nil }, put(queue.Envelope{}), true},
		"an output": {func(ctx context.Context, j *job.Job) ([]byte, error) {
			return nil, j.SendOutput(ctx, "x", strings.NewReader("x"))
		}, put(queue.Envelope{}), true},
		"a producer that waits": {nothing, put(queue.Envelope{Awaited: true}), true},
		"a payload in a blob":   {nothing, func(b *bench) { b.PutLarge("a", "k", make([]byte, 100<<10)) }, true},
		"a chosen id":           {nothing, put(queue.Envelope{ChosenID: true}), true},
		"released before":       {nothing, func(b *bench) { b.putOpen("a", "k", checkpoint.Snapshot{State: []byte("s")}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": job.Idempotent(job.HandlerFunc(row.run))}, func(t *testing.T, b *bench) {
				row.put(b)
				b.runOne()
				if r := b.Record("a"); (r.Status == checkpoint.Done) != row.record || (r.Status == "") == row.record || b.MessagesLeft() != 0 {
					t.Errorf("record = %q, %d messages; want one: %t", r.Status, b.MessagesLeft(), row.record)
				}
				if len(b.log.Find("job committed")) != 1 || b.counter.Of("ended committed")["ended committed"] != 1 {
					t.Error("the job is not reported as committed once")
				}
			})
		})
	}
}
