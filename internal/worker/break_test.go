package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/job"
)

// TestBreak: a handler that takes breaks goes on from where it was, a little
// later, and is never charged for one.
func TestBreak(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const breaks = maxFailures + 2
		var calls atomic.Int32
		inParts := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			state, _, _ := j.Saved()
			if calls.Add(1); len(state) < breaks {
				j.Report(job.Progress{State: append(state, 'x')})
				return nil, job.Interrupted(errors.New("enough for now"))
			}
			return state, nil
		})
		b.put("a", "parts", "")
		began := time.Now()
		b.start("vm_0", job.Kinds{"parts": inParts})
		b.waitDone("a", 5*time.Minute)
		r := b.record("a")
		if got := int(calls.Load()); got != breaks+1 || r.Interruptions != breaks || r.Failures != 0 {
			t.Errorf("%d calls, %d interruptions, %d failures, want %d, %d, 0", got, r.Interruptions, r.Failures, breaks+1, breaks)
		}
		if took := time.Since(began); took < breaks*firstBackoff {
			t.Errorf("%d breaks took %s in all, want %s each: the worker must not spin", breaks, took, firstBackoff)
		}
	})
}

// TestStopTellsNotBefore: a handler learns by when the platform may take the VM.
func TestStopTellsNotBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var stopped atomic.Pointer[job.Stop]
		waits := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: []byte("x")})
			<-ctx.Done()
			stopped.Store(job.StopOf(ctx))
			return nil, ctx.Err()
		})
		b.put("a", "waits", "")
		p := b.start("vm_0", job.Kinds{"waits": waits})
		b.waitFor("work", time.Minute, func() bool { return len(p.log.find("job started")) == 1 })
		if _, err := b.metadata.SimulateEviction("vm_0"); err != nil {
			t.Fatal(err)
		}
		b.waitFor("stop", 5*time.Second, func() bool { return stopped.Load() != nil })
		if stop := stopped.Load(); stop.NotBefore.IsZero() || !stop.NotBefore.After(stop.Deadline) {
			t.Errorf("stop = %+v, want the event's NotBefore in it, behind the deadline", stop)
		}
	})
}
