package delivery_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
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
		"nothing": {nothing, put(queue.Envelope{}), false},
		"a log": {func(ctx context.Context, _ *job.Job) ([]byte, error) {
			printLines(ctx, "a", manyLines)
			return nil, nil
		}, put(queue.Envelope{}), false},
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
				if wrote := b.counted(storage.OpPutBlob) > 0; !row.record && wrote {
					t.Error("a blob is written for a job without a record")
				}
				if len(b.log.Find("job committed")) != 1 || b.counter.Of("ended committed")["ended committed"] != 1 {
					t.Error("the job is not reported as committed once")
				}
			})
		})
	}
}

// TestWithoutAContainerForOutputs: a worker without a container for outputs runs jobs, also jobs that leave no record, and
// leaves a job that has outputs to others.
func TestWithoutAContainerForOutputs(t *testing.T) {
	hooked := false
	kinds := job.Kinds{
		"hooked": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.BeforeSave(func(context.Context) error { hooked = true; return nil })
			j.Report(job.Progress{State: []byte("s")})
			return nil, sleeps(ctx, 2*time.Minute) // saved
		}),
		"idempotent": job.Idempotent(job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) { return nil, nil })),
		"echo":       rig.Echo,
		"sends": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			return nil, errors.Join(j.SendOutput(ctx, "x", strings.NewReader("x")), job.Interrupted(errors.New("wait")))
		}),
	}
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.Put("sends", "sends", "")
		b.runOne()
		b.config.Stores.Outputs = nil
		b.restarted()
		for _, id := range []string{"idempotent", "echo", "hooked"} {
			want := checkpoint.Done
			if id == "idempotent" {
				want = ""
			}
			b.Put(id, id, "")
			b.runOne()
			if r := b.Record(id); r.Status != want || b.counter.WithPrefix("failed") != 0 {
				t.Errorf("record of %s = %q, want %q", id, r.Status, want)
			}
		}
		if n := b.counter.WithPrefix("ended committed"); n != 3 || b.MessagesLeft() != 1 || hooked || b.counter.WithPrefix("saved saved") != 1 {
			t.Errorf("%d jobs committed, %d messages, outputs were to be sent: %t; want three, the message of the job with an output, false", n,
				b.MessagesLeft(), hooked)
		}
		time.Sleep(time.Hour)
		b.runOne()
		if r := b.Record("sends"); r.Status != checkpoint.Open || r.FailuresTotal != 0 || r.Outputs.Files != 1 || b.MessagesLeft() != 1 ||
			b.counter.WithPrefix("started") != 4 {
			t.Errorf("record = %q after %d failures and with %d outputs, %d messages; want it open, with one, and its message", r.Status,
				r.FailuresTotal, r.Outputs.Files, b.MessagesLeft())
		}
	})
}
