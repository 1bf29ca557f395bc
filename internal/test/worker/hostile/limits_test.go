package hostile

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/worker/rig"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// reportUntilStopped returns a handler that reports at that interval until it is
// stopped. It then sends the stop, and returns a result, which must not be committed.
func reportUntilStopped(every time.Duration, stops chan<- *job.Stop) job.HandlerFunc {
	return func(ctx context.Context, j *job.Job) ([]byte, error) {
		for n := byte(0); ; n++ {
			select {
			case <-ctx.Done():
				stops <- job.StopOf(ctx)
				return []byte("too late"), nil
			case <-time.After(every):
				j.Report(job.Progress{State: []byte{byte(j.Attempt), n}})
			}
		}
	}
}

// next waits for the next stop of a job and returns it.
func next(t *testing.T, stops <-chan *job.Stop) *job.Stop {
	t.Helper()
	select {
	case stop := <-stops:
		return stop
	case <-time.After(10 * time.Minute):
		t.Fatal("no job was stopped for 10 minutes")
		return nil
	}
}

// TestMaxRunCountsAllDeliveries: a job is stopped when its run time over all
// deliveries reaches MaxRun. It is dead-lettered, and its record keeps the state.
func TestMaxRunCountsAllDeliveries(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		stops := make(chan *job.Stop, 10)
		kinds := job.Kinds{"endless": job.WithLimits(interruptible(stops), job.Limits{MaxRun: time.Minute})}
		b.Put("a", "endless", "")
		first := b.Start("vm_0", kinds)
		b.WaitFor("a run of 40 s", time.Minute, func() bool { return b.Record("a").RunTime >= 40*time.Second })
		first.Stop()
		_ = next(t, stops)
		used := b.Record("a").RunTime
		time.Sleep(10 * time.Minute) // on the queue, which is not run time
		resumed := time.Now()
		b.Start("vm_2", kinds)
		stop := next(t, stops)
		if took := time.Since(resumed); stop.Reason != job.Overrun || took > time.Minute-used+2*time.Second {
			t.Errorf("stop = %v %s after the worker's start, want %q within %s", stop, took, job.Overrun, time.Minute-used)
		}
		b.WaitFor("poison", time.Minute, func() bool { return len(b.PoisonMessages()) == 1 })
		r := b.Record("a")
		if r.Status != checkpoint.Poison || !strings.Contains(r.Reason, "ran too long: 1m0s over all deliveries") || !r.HasState() {
			t.Errorf("record = %s because %q, state %t, want poison, that reason, and the state", r.Status, r.Reason, r.HasState())
		}
	})
}

// interruptible reports every second, and returns the cause when it is stopped.
func interruptible(stops chan<- *job.Stop) job.HandlerFunc {
	run := reportUntilStopped(time.Second, stops)
	return func(ctx context.Context, j *job.Job) ([]byte, error) {
		_, _ = run(ctx, j)
		return nil, context.Cause(ctx)
	}
}

// TestMaxSilence: a job that does not report for longer than MaxSilence is stopped
// and has failed, even if its handler then returns a result. The stricter of the
// limits of handler and message applies.
func TestMaxSilence(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		stops := make(chan *job.Stop, 10)
		late := reportUntilStopped(25*time.Second, stops) // longer than the message's MaxSilence
		kinds := job.Kinds{"late": job.WithLimits(late, job.Limits{MaxSilence: time.Minute})}
		b.Start("vm_0", kinds)
		if err := b.Queue.Put(t.Context(), queue.Envelope{ID: "a", Kind: "late", MaxSilence: 20 * time.Second}, 0); err != nil {
			t.Fatal(err)
		}
		put := time.Now()
		stop := next(t, stops)
		if took := time.Since(put); stop.Reason != job.Silent || took < 20*time.Second || took > 31*time.Second {
			t.Errorf("stop = %v after %s, want %q after 20s", stop, took, job.Silent)
		}
		b.WaitFor("failure", time.Minute, func() bool { return b.Record("a").Failures == 1 })
		if r := b.Record("a"); r.Status != checkpoint.Open || !strings.Contains(r.Reason, "silent for 20s; 20s are allowed") {
			t.Errorf("record = %s because %q, want open after a failure", r.Status, r.Reason)
		}
		b.WaitFor("poison", 10*time.Minute, func() bool { return len(b.PoisonMessages()) == 1 })
		if got := b.PoisonMessages()[0].Reason; !strings.HasPrefix(got, "5 failures in a row without progress, the last: stopped: no "+
			"report: silent") {
			t.Errorf("reason of the poison message = %q, want five failures", got)
		}
	})
}

// TestLimitsThatAreKept: a job that reports in time and runs for less than MaxRun is
// not stopped.
func TestLimitsThatAreKept(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 50, Each: time.Second}
		b.Put("a", "steps", "")
		b.Start("vm_0", job.Kinds{"steps": job.WithLimits(work, job.Limits{MaxRun: 51 * time.Second, MaxSilence: 2 * time.Second})})
		b.WaitDone("a", 2*time.Minute)
		if r := b.Record("a"); r.Failures != 0 || r.RunTime != 50*time.Second {
			t.Errorf("record = %d failures, run time %s, want 0, 50s", r.Failures, r.RunTime)
		}
	})
}

// TestStateOfAnUnknownVersion: a handler that cannot read the state's version fails
// with that reason. The record keeps the state through the retries and after the job
// is dead-lettered, for a worker that can read it.
func TestStateOfAnUnknownVersion(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		newer := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: []byte("of version 2"), Version: 2})
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		older := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			if err := j.CheckVersion(1); err != nil {
				return nil, err
			}
			return nil, errors.New("accepted a state of an unknown version")
		})
		b.Put("a", "k", "")
		first := b.Start("vm_0", job.Kinds{"k": newer})
		b.WaitFor("a state", time.Minute, func() bool { return b.Record("a").HasState() })
		first.Stop()

		b.Start("vm_1", job.Kinds{"k": older})
		for failures := 1; failures < job.DefaultMaxFailures; failures++ {
			b.WaitFor("failure", 10*time.Minute, func() bool { return b.Record("a").Failures == failures })
			wantVersion2(t, b, checkpoint.Open)
		}
		b.WaitFor("poison", 10*time.Minute, func() bool { return len(b.PoisonMessages()) == 1 })
		wantVersion2(t, b, checkpoint.Poison)
		if got := b.PoisonMessages()[0].Reason; !strings.Contains(got, "recorded state has version 2; this program reads 1") {
			t.Errorf("reason of the poison message = %q, want the versions", got)
		}
	})
}

func wantVersion2(t *testing.T, b *rig.Bed, status checkpoint.Status) {
	t.Helper()
	r := b.Record("a")
	for _, blob := range b.Server.Blobs(b.Names.Records) {
		if _, body, _ := b.Server.ReadBlob(b.Names.Records, blob.Name); string(body) != "of version 2" {
			t.Errorf("state in the record = %q, want the one that version 2 left", body)
		}
	}
	if r.Status != status || r.StateVersion != 2 || !r.HasState() {
		t.Errorf("record = %s, state of version %d, want %s with the state of version 2", r.Status, r.StateVersion, status)
	}
}
