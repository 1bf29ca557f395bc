package delivery_test

import (
	"context"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// TestRunTimeOfAnAbandonedHandler: the time of a handler that ignores its stop ends when the worker continues without it,
// also if its record is written later.
func TestRunTimeOfAnAbandonedHandler(t *testing.T) {
	const ran, outage = 35 * time.Second, 10 * time.Second // 30 s of silence and 5 s of grace
	var end chan struct{}
	run := job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
		<-end
		return nil, nil
	})
	onBench(t, job.Kinds{"k": job.WithLimits(run, job.Limits{MaxSilence: 30 * time.Second})}, func(t *testing.T, b *bench) {
		end = make(chan struct{})
		defer func() { close(end); time.Sleep(time.Second) }()
		b.Put("a", "k", "")
		begun := time.Now()
		b.down(func(storage.Call) bool { return time.Since(begun) >= ran && time.Since(begun) < ran+outage })
		b.runOne()
		if took := time.Since(begun); took < ran+outage {
			t.Errorf("ended after %s, want the end of the outage", took)
		}
		if got := b.Record("a").RunTime; got < ran || got > ran+time.Second {
			t.Errorf("run time = %s, want %s", got, ran)
		}
		if got := b.counter.Times["k, failed"]; got < ran || got > ran+time.Second {
			t.Errorf("time of the handler = %s, want %s", got, ran)
		}
	})
}

// TestStopOfAStoppedJob: a job that is stopped alone has a drain of its own until its end, and a second reason to stop it adds none.
func TestStopOfAStoppedJob(t *testing.T) {
	run := job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
		<-ctx.Done()
		time.Sleep(4900 * time.Millisecond) // of a grace of 5 s
		return nil, context.Cause(ctx)
	})
	onBench(t, job.Kinds{"k": job.WithLimits(run, job.Limits{MaxSilence: 27 * time.Second})}, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		lease := b.claim()
		wait := b.begin(lease)
		time.Sleep(22 * time.Second)
		if err := lease.Release(t.Context(), 0); err != nil { // so that the renewal after 30 s is refused
			t.Fatal(err)
		}
		b.claim()
		for _, row := range []struct {
			after  time.Duration // of the job
			drains int
			lost   int
		}{{26 * time.Second, 0, 0}, {28 * time.Second, 1, 0}, {31 * time.Second, 1, 1}} {
			time.Sleep(row.after - time.Since(b.config.Started))
			if got, lost := b.config.Drains.Len(), b.lines("message lost; stopping the job"); got != row.drains || lost != row.lost {
				t.Errorf("after %s %d drains, %d lines about the message; want %d, %d", row.after, got, lost, row.drains, row.lost)
			}
		}
		if wait(); b.config.Drains.Len() != 0 {
			t.Errorf("%d drains after the end of the job, want none", b.config.Drains.Len())
		}
	})
}

// TestLimitsEndWithTheRun: a job whose handler has returned exceeds no limit, however long its commit takes.
func TestLimitsEndWithTheRun(t *testing.T) {
	const ran, outage = 10 * time.Second, 2 * time.Minute
	run := job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) { return []byte("r"), sleeps(ctx, ran) })
	kinds := job.Kinds{"k": job.WithLimits(run, job.Limits{MaxSilence: 30 * time.Second, MaxRun: 30 * time.Second})}
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		begun := time.Now()
		b.down(func(c storage.Call) bool { return c.Container == b.Names.Records && time.Since(begun) < ran+outage })
		b.runOne()
		if r := b.Record("a"); r.Status != checkpoint.Done || time.Since(begun) < ran+outage ||
			b.lines("job exceeds a limit; stopping it") != 0 {
			t.Errorf("record = %s after %s, %d lines about a limit; want it done after the outage, none", r.Status, time.Since(begun),
				b.lines("job exceeds a limit; stopping it"))
		}
	})
}
