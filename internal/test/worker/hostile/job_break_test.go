package hostile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestBreak: a handler that returns job.Interrupted runs again after a back-off,
// with its last state, and no failure is counted.
func TestBreak(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const breaks = job.DefaultMaxFailures + 2
		var calls atomic.Int32
		inParts := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			state, _, _ := j.Saved()
			if calls.Add(1); len(state) < breaks {
				j.Report(job.Progress{State: append(state, 'x')})
				return nil, job.Interrupted(errors.New("enough for now"))
			}
			return state, nil
		})
		b.Put("a", "parts", "")
		began := time.Now()
		b.Start("vm_0", job.Kinds{"parts": inParts})
		b.WaitDone("a", 5*time.Minute)
		r := b.Record("a")
		if got := int(calls.Load()); got != breaks+1 || r.Interruptions != breaks || r.Failures != 0 {
			t.Errorf("%d calls, %d interruptions, %d failures, want %d, %d, 0", got, r.Interruptions, r.Failures, breaks+1, breaks)
		}
		if took := time.Since(began); took < breaks*job.DefaultBackoff {
			t.Errorf("%d breaks took %s in all, want %s each: the worker must not spin", breaks, took, job.DefaultBackoff)
		}
	})
}

// TestStopTellsNotBefore: the job.Stop of a handler has the event's NotBefore, the
// time from which the platform may take the VM.
func TestStopTellsNotBefore(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		var stopped atomic.Pointer[job.Stop]
		waits := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: []byte("x")})
			<-ctx.Done()
			stopped.Store(job.StopOf(ctx))
			return nil, ctx.Err()
		})
		b.Put("a", "waits", "")
		p := b.Start("vm_0", job.Kinds{"waits": waits})
		b.WaitFor("work", time.Minute, func() bool { return len(p.Log.Find("job started")) == 1 })
		if _, err := b.Metadata.SimulateEviction("vm_0"); err != nil {
			t.Fatal(err)
		}
		b.WaitFor("stop", 5*time.Second, func() bool { return stopped.Load() != nil })
		if stop := stopped.Load(); stop.NotBefore.IsZero() || !stop.NotBefore.After(stop.Deadline) {
			t.Errorf("stop = %+v, want the event's NotBefore in it, after the deadline", stop)
		}
	})
}

// TestFailuresWithoutEnd: a job that reports a new state before each failure never
// fails twice in a row without progress. It is dead-lettered after
// [job.MaxTotalFailures], and logs and metrics report it long before.
func TestFailuresWithoutEnd(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		seen := &rig.Counter{}
		circling := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			state, _, _ := j.Saved()
			j.Report(job.Progress{State: append(state, 'x'), Fraction: 0.5})
			return nil, errors.New("no luck")
		})
		b.Put("usual", "usual", "")
		p := b.Start("vm_0", job.Kinds{"usual": circling}, rig.Observed(seen))
		b.WaitFor("dead-lettered", 12*time.Hour, func() bool { return len(b.PoisonMessages()) == 1 })
		for id, total := range map[string]int{"usual": job.MaxTotalFailures} {
			r := b.Record(id)
			if want := fmt.Sprintf("%d failures in all", total); r.Status != checkpoint.Poison || !strings.Contains(r.Reason, want) ||
				r.FailuresTotal != total || r.Failures > 1 {
				t.Errorf("%s = %s because %q, %d failures in all, %d in a row, want poison because of %s", id, r.Status, r.Reason, r.FailuresTotal,
					r.Failures, want)
			}
		}
		if n, lines := seen.Of("circles failures")["circles failures"],
			p.Log.Find("job circles: it keeps failing although it makes progress"); n != 4 || len(lines) != 4 {
			t.Errorf("circling was counted %d times and logged %d times, want 4 each: at 10, 20, 40 and 80", n, len(lines))
		}
	})
}

// TestBreaksWithoutEnd: breaks in a row without a higher fraction are counted, which dead-letters a
// job at [job.MaxBreaks] (delivery: TestDecideBounds), and reported long before; a job whose
// fraction grows between its breaks ends.
func TestBreaksWithoutEnd(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		seen := &rig.Counter{}
		later := job.Interrupted(errors.New("later"))
		never := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			return nil, later
		})
		again := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			state, _, _ := j.Saved() // the fraction goes up and down, and the state is new each time
			j.Report(job.Progress{State: append(state, 'x'), Fraction: 0.1 + 0.1*float64(len(state)%2)})
			return nil, later
		})
		slowly := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			state, _, _ := j.Saved()
			if len(state) == 100 {
				return []byte("done"), nil
			}
			j.Report(job.Progress{State: append(state, 'x'), Fraction: float64(len(state)+1) / 1000})
			return nil, later
		})
		kinds := job.Kinds{}
		for name, h := range map[string]job.Handler{"never": never, "again": again, "slowly": slowly} {
			kinds[name] = h
			b.Put(name, name, "")
		}
		p := b.Start("vm_0", kinds, rig.Observed(seen))
		b.WaitDone("slowly", time.Hour)
		const line = "job circles: it keeps taking breaks and its fraction does not grow"
		b.WaitFor("both are reported at 10, 20 and 40", 2*time.Hour, func() bool { return len(p.Log.Find(line)) == 6 })
		for _, id := range []string{"never", "again"} {
			if r := b.Record(id); r.Breaks < 40 || r.Failures != 0 || r.Status.Final() {
				t.Errorf("%s = %s with %d breaks and %d failures, want 40 breaks alone", id, r.Status, r.Breaks, r.Failures)
			}
		}
		if n := seen.Of("circles breaks")["circles breaks"]; n != 6 {
			t.Errorf("circling was counted %d times, want 6", n)
		}
	})
}

// TestNilAfterStop: a handler that returns nil after its context ended has not
// finished, and its job is resumed. A job whose last report has fraction 1 is
// committed.
func TestNilAfterStop(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 20, Each: time.Second}
		careless := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			_, _ = work.Run(ctx, j)
			return nil, nil
		})
		whole := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			<-ctx.Done()
			j.Report(job.Progress{Fraction: 1, Text: "2 of 2"})
			return nil, nil
		})
		b.Put("part", "careless", "")
		b.Put("whole", "whole", "")
		first := b.Start("vm_0", job.Kinds{"careless": careless, "whole": whole})
		b.WaitFor("a part of the work", time.Minute, func() bool { return work.Done("part") == 2 })
		first.Stop()
		if r := b.Record("part"); r.Status != checkpoint.Open || r.Interruptions != 1 || r.Fraction != 0.1 {
			t.Errorf("record after the stop = %s, %d interruptions, fraction %v, want open, 1, 0.1", r.Status, r.Interruptions, r.Fraction)
		}
		if r := b.Record("whole"); r.Status != checkpoint.Done || r.Text != "2 of 2" {
			t.Errorf("job that reported fraction 1 after the stop = %s with %q, want done with its last text", r.Status, r.Text)
		}
		second := b.Start("vm_1", job.Kinds{"careless": careless})
		b.WaitDone("part", time.Minute)
		if n := work.Done("part"); n != 20 || work.Repeated("part") != 0 {
			t.Errorf("%d steps done, %d repeated, want 20, 0", n, work.Repeated("part"))
		}
		second.Stop()
	})
}

// TestDoneBeforeTheStop: a handler that returned nil before the stop has finished,
// even if a save was in progress, so that the worker sees both at the same time.
func TestDoneBeforeTheStop(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		quick := job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: []byte("x")})
			time.Sleep(7 * time.Second)
			return nil, nil
		})
		b.Put("a", "quick", "")
		var once sync.Once
		saving := make(chan struct{})
		b.Server.OnCall(func(c storage.Call) (f storage.Fault) {
			if c.Operation == storage.OpPutBlob && c.Container == b.Names.Records {
				once.Do(func() { f.Before = 4 * time.Second; close(saving) })
			}
			return f
		})
		p := b.Start("vm_0", job.Kinds{"quick": quick})
		<-saving                    // 5 s after the start
		time.Sleep(3 * time.Second) // the handler has returned, the save has not
		p.Stop()
		if r := b.Record("a"); r.Status != checkpoint.Done || r.Interruptions != 0 {
			t.Errorf("record = %s, %d interruptions, want done, 0", r.Status, r.Interruptions)
		}
	})
}
