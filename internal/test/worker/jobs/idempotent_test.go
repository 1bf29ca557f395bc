package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

var nothing = job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) { return nil, nil })

// TestIdempotentJobCost: a short job of an idempotent kind costs 1 + 1/32 storage
// calls and leaves no record.
func TestIdempotentJobCost(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const jobs = 32 * 20
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "again", "1")
		}
		b.Server.ResetCounts()
		b.Start("vm_0", job.Kinds{"again": job.Idempotent(nothing)}, func(c *worker.Config) { c.Concurrency = 32 })
		b.WaitFor("all jobs gone", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		counts := b.Server.Counts()
		if got := counts[storage.OpDeleteMessage]; got != jobs {
			t.Errorf("DeleteMessage calls = %d, want one a job", got)
		}
		if n := len(b.Server.Blobs(b.Names.Records)); n != 0 {
			t.Errorf("records = %d, want none", n)
		}
		if puts := counts[storage.OpPutBlob]; puts > 10 {
			t.Errorf("PutBlob calls = %d, want those of a few heartbeats", puts)
		}
		for _, op := range []string{storage.OpSetBlobMetadata, storage.OpUpdateMessage, storage.OpGetBlobProperties} {
			if counts[op] != 0 {
				t.Errorf("%s calls = %d, want none", op, counts[op])
			}
		}
	})
}

// TestIdempotentJobsWithRecords: a job of an idempotent kind has a record as any other
// as soon as there is something to record.
func TestIdempotentJobsWithRecords(t *testing.T) {
	fails := func(err error) job.Handler {
		return job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) { return nil, err })
	}
	for name, test := range map[string]struct {
		handler job.Handler
		change  func(*queue.Envelope)
		want    checkpoint.Status
	}{
		"result":    {handler: rig.Echo, want: checkpoint.Done},
		"awaited":   {handler: nothing, change: func(e *queue.Envelope) { e.Awaited = true }, want: checkpoint.Done},
		"chosen id": {handler: nothing, change: func(e *queue.Envelope) { e.ChosenID = true }, want: checkpoint.Done},
		"payload": {handler: nothing, change: func(e *queue.Envelope) { e.Payload = queue.BytesPayload(make([]byte, 60<<10)) },
			want: checkpoint.Done},
		"state":      {handler: &rig.Steps{N: 40, Each: time.Second}, want: checkpoint.Done},
		"long":       {handler: sleeps(time.Minute), want: checkpoint.Done},
		"failure":    {handler: fails(errors.New("no")), want: checkpoint.Open},
		"poison":     {handler: fails(job.Permanent(errors.New("no"))), want: checkpoint.Poison},
		"limits":     {handler: job.WithLimits(job.Idempotent(nothing), job.Limits{MaxRun: time.Hour}), want: ""},
		"no mark":    {handler: job.WithLimits(nothing, job.Limits{MaxRun: time.Hour}), want: checkpoint.Done},
		"redelivery": {handler: nothing, change: func(e *queue.Envelope) { e.Resume = true }, want: checkpoint.Done},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				payload, err := queue.JSONPayload([]byte("1"))
				if err != nil {
					t.Fatal(err)
				}
				e := queue.Envelope{ID: "a", Kind: "again", Payload: payload, EnqueuedAt: time.Now()}
				if test.change != nil {
					test.change(&e)
				}
				if name == "payload" {
					if e, err = b.Payloads.Offload(t.Context(), e); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Queue.Put(t.Context(), e, 0); err != nil {
					t.Fatal(err)
				}
				handler := test.handler
				if name != "no mark" && name != "limits" {
					handler = job.Idempotent(handler)
				}
				b.Start("vm_0", job.Kinds{"again": handler})
				if test.want == checkpoint.Open {
					b.WaitFor("failure", time.Minute, func() bool { return b.Record("a").Failures == 1 })
					return
				}
				b.WaitFor("end", 3*time.Minute, func() bool { return b.MessagesLeft() == 0 })
				if got := b.Record("a").Status; got != test.want {
					t.Errorf("record = %q, want %q", got, test.want)
				}
				if blobs := b.Server.Blobs(b.Names.Payloads); len(blobs) > 0 {
					t.Errorf("payloads left = %v, want none", blobs)
				}
			})
		})
	}
}

// TestIdempotentJobIsHandedOver: a stop loses no job of an idempotent kind, and a job
// without a state is released without a record.
func TestIdempotentJobIsHandedOver(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Put("a", "again", "1")
		p := b.Start("vm_0", job.Kinds{"again": job.Idempotent(sleeps(time.Minute))})
		time.Sleep(time.Second)
		p.Stop()
		if n := len(b.Server.Blobs(b.Names.Records)); n != 0 || b.MessagesLeft() != 1 {
			t.Errorf("%d records, %d messages, want the message alone", n, b.MessagesLeft())
		}
		var runs atomic.Int64
		b.Start("vm_1", job.Kinds{"again": job.Idempotent(counts(&runs))})
		b.WaitFor("end", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if runs.Load() != 1 {
			t.Errorf("runs = %d, want 1", runs.Load())
		}
	})
}

// TestIdempotentDuplicates: this is the weaker promise: a duplicate runs the job again.
func TestIdempotentDuplicates(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var runs atomic.Int64
		b.Start("vm_0", job.Kinds{"again": job.Idempotent(counts(&runs))})
		for range 2 {
			b.Put("a", "again", "1")
			b.WaitFor("end", time.Minute, func() bool { return b.MessagesLeft() == 0 })
			synctest.Wait()
		}
		if runs.Load() != 2 {
			t.Errorf("runs of a job that was put twice = %d, want 2", runs.Load())
		}
	})
}

// TestIdempotentStaleOwner: a worker that was frozen and comes back writes nothing, and
// leaves the message to the worker that has the job by now.
func TestIdempotentStaleOwner(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Put("a", "again", "1")
		p := b.Start("vm_0", job.Kinds{"again": job.Idempotent(sleeps(2 * time.Second))})
		time.Sleep(time.Second)
		thaw := p.Link.Hold()
		b.Start("vm_1", job.Kinds{"again": job.Idempotent(sleeps(time.Minute))})
		time.Sleep(40 * time.Second)
		thaw()
		time.Sleep(10 * time.Second)
		if n := b.MessagesLeft(); n != 1 || b.Record("a").Owner != "vm_1-11112222-0" {
			t.Errorf("%d messages, owner %q, want the second worker to have the job", n, b.Record("a").Owner)
		}
		if n := len(p.Log.Find("job committed")); n != 1 {
			t.Errorf("the stale owner reported %d ends, want its own, which no other sees", n)
		}
		b.WaitDone("a", 2*time.Minute)
	})
}

// sleeps is a handler that takes that long.
func sleeps(d time.Duration) job.Handler {
	return job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
		select {
		case <-time.After(d):
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
}

// counts is a handler that counts its runs.
func counts(runs *atomic.Int64) job.Handler {
	return job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
		runs.Add(1)
		return nil, nil
	})
}
