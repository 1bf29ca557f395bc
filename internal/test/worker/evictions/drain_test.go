package evictions

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// drainedAfter returns how long the worker's drain took, and how many states it did
// not save.
func drainedAfter(p *rig.Process) (took time.Duration, leftOut int) {
	p.Bed.T.Helper()
	lines := p.Log.Find("drained")
	if len(lines) != 1 {
		p.Bed.T.Fatalf("drains = %d, want 1", len(lines))
	}
	return time.Duration(lines[0]["since_notice"].(float64)), int(lines[0]["states_left_out"].(float64))
}

// swallowNext delays the next call for which is returns true by an hour: the call
// before its effect, or if arrives is true its reply. The returned channel is closed
// when the call is made.
func swallowNext(b *rig.Bed, is func(storage.Call) bool, arrives bool) <-chan struct{} {
	came := make(chan struct{})
	b.Server.OnCall(func(c storage.Call) storage.Fault {
		select {
		case <-came:
			return storage.Fault{}
		default:
		}
		switch {
		case !is(c):
			return storage.Fault{}
		case arrives:
			close(came)
			return storage.Fault{After: time.Hour}
		default:
			close(came)
			return storage.Fault{Before: time.Hour}
		}
	})
	return came
}

// TestSwallowedInFlight: a call that was swallowed just before the drain delays it no
// more than a call that is swallowed during the drain.
func TestSwallowedInFlight(t *testing.T) {
	write := func(b *rig.Bed) func(storage.Call) bool {
		return func(c storage.Call) bool { return c.Operation == storage.OpPutBlob && c.Container == b.Names.Records }
	}
	for _, row := range []struct {
		name   string
		n      int // steps of the job
		is     func(*rig.Bed) func(storage.Call) bool
		status checkpoint.Status
	}{
		{"a checkpoint", 60, write, checkpoint.Open},
		{"a commit", 4, write, checkpoint.Done},
		{"a renewal", 60, func(*rig.Bed) func(storage.Call) bool {
			return func(c storage.Call) bool { return c.Operation == storage.OpUpdateMessage }
		}, checkpoint.Open},
		{"the deletion of a message", 4, func(*rig.Bed) func(storage.Call) bool {
			return func(c storage.Call) bool { return c.Operation == storage.OpDeleteMessage }
		}, checkpoint.Done},
	} {
		for _, arrives := range []bool{false, true} {
			t.Run(row.name+map[bool]string{false: " that does not arrive", true: " that arrives"}[arrives], func(t *testing.T) {
				rig.Run(t, func(t *testing.T, b *rig.Bed) {
					work := &rig.Steps{N: row.n, Each: time.Second}
					b.Put("a", "steps", "")
					p := b.Start("vm_0", job.Kinds{"steps": work}, func(c *worker.Config) { c.Metadata = nil })
					b.WaitFor("work", 10*time.Second, func() bool { return work.Done("a") > 0 })
					<-swallowNext(b, row.is(b), arrives)
					time.Sleep(300 * time.Millisecond)
					p.Stop()
					took, leftOut := drainedAfter(p)
					if took > rig.HangingCallDrain || leftOut != 0 {
						t.Errorf("drained after %s with %d states left out, want at most %s and none", took, leftOut, rig.HangingCallDrain)
					}
					r := b.Record("a")
					if r.Status != row.status || row.status == checkpoint.Open && r.StateSize == 0 {
						t.Errorf("record = %s with %d bytes of state, want %s", r.Status, r.StateSize, row.status)
					}
				})
			})
		}
	}
}

// TestStateThatArrivedIsNotLeftOut: the write of a large state takes effect but is
// never answered. The record has the state, and the log does not report it as left
// out.
func TestStateThatArrivedIsNotLeftOut(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		state := make([]byte, 1<<20) // not small, so that its one try may take the whole budget
		b.Put("a", "waits", "")
		p := b.Start("vm_0", job.Kinds{"waits": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: []byte("first")})
			<-ctx.Done()
			j.Report(job.Progress{State: state})
			return nil, context.Cause(ctx)
		})})
		b.WaitFor("a checkpoint", 20*time.Second, func() bool { return b.Record("a").HasState() })
		swallowNext(b, func(c storage.Call) bool { return c.Operation == storage.OpPutBlob && c.Container == b.Names.Records }, true)
		p.Stop()
		if _, leftOut := drainedAfter(p); leftOut != 0 ||
			len(p.Log.Find("last state not saved in time; the job resumes from the checkpoint before")) != 0 {
			t.Errorf("states left out = %d, want none, and no line about one", leftOut)
		}
		if r := b.Record("a"); r.Status != checkpoint.Open || r.StateSize != int64(len(state)) || r.Interruptions != 1 {
			t.Errorf("record = %s, %d bytes of state, %d interruptions, want open, %d, 1", r.Status, r.StateSize, r.Interruptions, len(state))
		}
	})
}

// TestDrainOfSlowStorage: 128 jobs are released within 8 s although each storage call
// takes 2.5 s, either all the time or since the notice.
func TestDrainOfSlowStorage(t *testing.T) {
	const jobs = 128
	slow := storage.Fault{Before: 1250 * time.Millisecond, After: 1250 * time.Millisecond}
	for _, row := range []struct {
		name   string
		before storage.Fault
	}{{"slow all the time", slow}, {"slow since the notice", storage.Fault{Before: 10 * time.Millisecond}}} {
		t.Run(row.name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.Server.OnCall(func(storage.Call) storage.Fault { return row.before })
				for i := range jobs {
					b.Put(fmt.Sprintf("job-%d", i), "crowd", "")
				}
				work := &rig.SteadyReporter{}
				p := b.Start("vm_0", job.Kinds{"crowd": work}, func(c *worker.Config) { c.Concurrency, c.Metadata = jobs, nil })
				b.WaitFor("all jobs running", 2*time.Minute, func() bool { return work.Running.Load() == jobs })
				time.Sleep(time.Minute)
				b.Server.OnCall(func(storage.Call) storage.Fault { return slow })
				p.Term()
				b.WaitFor("drained", 15*time.Second, func() bool { return len(p.Log.Find("drained")) == 1 })
				b.Server.OnCall(nil)
				took, leftOut := drainedAfter(p)
				t.Logf("%d jobs drained with calls of 2.5s: %s", jobs, took)
				released := p.Log.Find("drained")[0]["released"]
				if took > 8*time.Second || leftOut != 0 || released != float64(jobs) {
					t.Errorf("drained after %s, %v released, %d states left out, want at most 8s, %d, 0", took, released, leftOut, jobs)
				}
			})
		})
	}
}

// TestEvictionOfAStoppedJob: a drain also covers a job that is being stopped for
// exceeding a limit. The job is released within the drain's budget.
func TestEvictionOfAStoppedJob(t *testing.T) {
	for _, row := range []struct {
		name string
		slow bool // its state cannot be uploaded; otherwise its handler does not return
	}{{"its handler does not return", false}, {"its state cannot be uploaded", true}} {
		t.Run(row.name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				stubborn := rig.NewStubborn()
				defer stubborn.Finish()
				quiet := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
					j.Report(job.Progress{State: []byte("first")})
					<-ctx.Done()
					j.Report(job.Progress{State: make([]byte, 1<<20)})
					return nil, context.Cause(ctx)
				})
				limits := job.Limits{MaxSilence: 20 * time.Second}
				kinds := job.Kinds{"h": job.WithLimits(quiet, limits)}
				if !row.slow {
					kinds["h"] = job.WithLimits(stubborn, limits)
				}
				b.Put("a", "h", "")
				p := b.Start("vm_0", kinds, func(c *worker.Config) { c.Metadata, c.DrainBudget = nil, 2*time.Second })
				b.WaitFor("a checkpoint", 15*time.Second, func() bool { return b.Record("a").HasState() })
				if row.slow {
					b.Server.OnCall(func(c storage.Call) storage.Fault {
						if c.Operation == storage.OpPutBlob && c.Size > 1<<19 {
							return storage.Fault{Before: time.Hour}
						}
						return storage.Fault{}
					})
				}
				b.WaitFor("the stop", time.Minute, func() bool { return len(p.Log.Find("job exceeds a limit; stopping it")) == 1 })
				p.Stop()
				if took, _ := drainedAfter(p); took > 2*time.Second {
					t.Errorf("drained after %s, want the budget of 2s at most", took)
				}
				if r := b.Record("a"); r.Status != checkpoint.Open || r.Failures != 1 {
					t.Errorf("record = %s, %d failures, want open, 1", r.Status, r.Failures)
				}
			})
		})
	}
}
