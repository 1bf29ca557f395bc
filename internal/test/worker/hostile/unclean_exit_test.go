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

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// TestKillersAmongHealthyJobs: jobs that kill their worker at every start are
// dead-lettered, and every healthy job that was claimed with them is done, with one
// worker and with ten. No worker runs two quarantined jobs at once.
func TestKillersAmongHealthyJobs(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	for _, workers := range []int{1, 10} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) { killersAmongHealthyJobs(t, b, workers) })
		})
	}
}

func killersAmongHealthyJobs(t *testing.T, b *rig.Bed, workers int) {
	const killers, healthy = 3, 20
	b.AddRecorder()
	for i := range healthy {
		b.Put(fmt.Sprintf("healthy-%d", i), "steps", "")
		if i < killers {
			b.Put(fmt.Sprintf("killer-%d", i), "killer", "")
		}
	}
	work := &rig.Steps{N: 8, Each: 900 * time.Millisecond}
	var fleet sync.WaitGroup
	over := make(chan struct{})
	for i := range workers {
		fleet.Go(func() { restartAlways(t, b, fmt.Sprintf("vm_%d", i), work, over) })
	}
	b.WaitFor("no message left", 12*time.Hour, func() bool { return b.MessagesLeft() == 0 })
	close(over)
	fleet.Wait()
	for i := range healthy {
		b.CheckOutcome(t, fmt.Sprintf("healthy-%d", i), checkpoint.Done)
	}
	for i := range killers {
		id := fmt.Sprintf("killer-%d", i)
		b.CheckOutcome(t, id, checkpoint.Poison)
		if r := b.Record(id); r.ChargedExits != rig.MaxChargedExits || !strings.Contains(r.Reason, "unclean exits in a row") {
			t.Errorf("job %s = %d unclean exits, reason %q, want %d, and a reason that names them", id, r.ChargedExits, r.Reason,
				rig.MaxChargedExits)
		}
	}
	b.Recorder.Check(t)
}

// TestManyInQuarantine: short jobs whose workers died by chance, as in a storm of evictions, are
// soon done when it is over, although a worker runs one of them at a time.
func TestManyInQuarantine(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const jobs, workers, each = 40, 2, 2 * time.Second
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "work", "")
		}
		took := atomic.Int64{}
		took.Store(int64(time.Hour))
		work := job.Kinds{"work": job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
			rig.SleepFor(ctx, time.Duration(took.Load()))
			return nil, context.Cause(ctx)
		})}
		for i := range rig.QuarantineAfter {
			p := b.Start(fmt.Sprintf("dies_%d", i), work, func(c *worker.Config) { c.Concurrency = jobs })
			b.WaitFor("all run", 2*time.Minute, func() bool {
				for j := range jobs {
					if r := b.Record(fmt.Sprintf("job-%d", j)); r.Generation != i+1 || r.Status != checkpoint.Running {
						return false
					}
				}
				return true
			})
			p.Kill()
		}
		took.Store(int64(each))
		began := time.Now()
		for i := range workers {
			b.Start(fmt.Sprintf("lives_%d", i), work)
		}
		b.WaitFor("all done", 10*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		least := jobs / workers * each
		got := time.Since(began) - rig.DefaultVisibility // the messages of the last worker are hidden for so long
		t.Logf("all were done after %s; their run time is %s", got, least)
		if got > 5*least {
			t.Errorf("all were done after %s, want at most five times %s, their run time", got, least)
		}
	})
}

// restartAlways is the service manager of one VM: it starts the worker again when
// a job has killed it.
func restartAlways(t *testing.T, b *rig.Bed, vm string, work *rig.Steps, over <-chan struct{}) {
	for {
		dead := make(chan struct{})
		var p *rig.Process
		var once sync.Once
		var quarantined atomic.Int32
		killer := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			if b.Record(j.ID).UncleanExits() >= rig.QuarantineAfter {
				if n := quarantined.Add(1); n > 1 {
					t.Errorf("%s runs %d quarantined jobs at once, want one", vm, n)
				}
				defer quarantined.Add(-1)
			}
			if rig.SleepFor(ctx, 3*time.Second) {
				once.Do(func() { close(dead) })
			}
			<-ctx.Done()
			return nil, errors.New("killed")
		})
		p = b.Start(vm, job.Kinds{"steps": work, "killer": killer}, func(c *worker.Config) { c.Metadata = nil })
		select {
		case <-dead:
			p.Kill()
		case <-over:
			p.Stop()
			return
		}
		time.Sleep(5 * time.Second)
	}
}

// TestEvictedAThousandTimes: a healthy job is evicted with a notice 500 times, and
// then its VM dies without one 500 times, each time after some progress. It is done
// finally, and no failure was counted.
func TestEvictedAThousandTimes(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const each = 500
		var finish atomic.Bool
		work := &rig.Steps{N: 1 << 30, Each: time.Second}
		healthy := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			if finish.Load() {
				return []byte("at last"), nil
			}
			return work.Run(ctx, j)
		})
		b.Put("a", "healthy", "")
		kinds := job.Kinds{"healthy": healthy}
		for i := range each {
			p := b.Start(fmt.Sprintf("warned_%d", i), kinds)
			time.Sleep(3 * time.Second)
			id, err := b.Metadata.SimulateEviction(p.Host)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if n := len(p.Log.Find("job released")); n != 1 {
				t.Fatalf("eviction %d: jobs released = %d, want 1", i, n)
			}
			p.Kill()
			b.Metadata.Complete(id)
		}
		for i := 0; i < each && !b.Record("a").Status.Final(); i++ {
			before := b.Record("a").StateHash
			p := b.Start(fmt.Sprintf("unwarned_%d", i), kinds, func(c *worker.Config) { c.Metadata = nil })
			time.Sleep(37 * time.Second) // until the message is visible, and the first checkpoint
			if r := b.Record("a"); r.StateHash == before && !r.Status.Final() {
				t.Fatalf("death %d: no progress after %s", i, 37*time.Second)
			}
			p.Kill()
		}
		finish.Store(true)
		b.Start("last", kinds)
		b.WaitFor("no message left", 5*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		r := b.Record("a")
		if r.Status != checkpoint.Done || r.Failures != 0 || r.Interruptions < each-1 || r.Generation < 2*each-1 {
			t.Errorf("record = %s %s, %d failures, %d interruptions, generation %d, want done, 0, %d (the first left no record), at least %d",
				r.Status, r.Reason, r.Failures, r.Interruptions, r.Generation, each-1, 2*each-1)
		}
	})
}

// TestVMsDieFasterThanASave: a healthy job whose VMs die within seconds of its
// start, one after another, is never poisoned. It saves early after the first such
// exit, and so makes progress if its VMs live long enough for a step.
func TestVMsDieFasterThanASave(t *testing.T) {
	for name, row := range map[string]struct {
		step     time.Duration // length of each of the job's 12 steps
		vms      int           // that die 3 s after the job's start
		progress bool          // whether that is long enough for a step
	}{
		"time for a step":    {time.Second, 30, true},
		"no time for a step": {5 * time.Second, 30, false},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				work := &rig.Steps{N: 12, Each: row.step}
				kinds := job.Kinds{"steps": work}
				b.Put("a", "steps", "")
				for i := range row.vms {
					p := b.Start(fmt.Sprintf("short_%d", i), kinds, func(c *worker.Config) { c.Metadata = nil })
					for began := time.Now(); len(p.Log.Find("job started")) == 0 && time.Since(began) < 40*time.Second; {
						time.Sleep(100 * time.Millisecond)
					}
					time.Sleep(3 * time.Second)
					p.Kill()
				}
				r := b.Record("a")
				if r.Status == checkpoint.Poison || (r.Status == checkpoint.Done) != row.progress {
					t.Errorf("record after %d VMs = %s %s, want done: %t, and never poison", row.vms, r.Status, r.Reason, row.progress)
				}
				b.Start("long", kinds)
				b.WaitDone("a", 10*time.Minute)
			})
		})
	}
}

// killed runs a worker and the job "killer", which kills it, until that job is
// dead-lettered, and returns how often it killed the worker. run is the job's
// handler, which calls die; a killed worker starts again after restart.
func killed(b *rig.Bed, kinds job.Kinds, restart time.Duration, run func(ctx context.Context, die func()),
	change ...func(*worker.Config)) (deaths int) {
	b.T.Helper()
	const limit = 100
	for ; deaths < limit; deaths++ {
		dead := make(chan struct{})
		var once sync.Once
		kinds["killer"] = job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
			run(ctx, func() { once.Do(func() { close(dead) }) })
			<-ctx.Done()
			return nil, errors.New("killed")
		})
		p := b.Start("vm_0", kinds, append(change, func(c *worker.Config) { c.Metadata = nil })...)
		over := time.Now().Add(4 * time.Hour)
		for !rig.IsClosed(dead) && b.Record("killer").Status != checkpoint.Poison && time.Now().Before(over) {
			select {
			case <-dead:
			case <-time.After(time.Second):
			}
		}
		if p.Kill(); !rig.IsClosed(dead) {
			break
		}
		time.Sleep(restart)
	}
	if r := b.Record("killer"); r.Status != checkpoint.Poison || !strings.Contains(r.Reason, "the job may be killing its worker") {
		b.T.Errorf("record after %d deaths = %s %q, want poison, and that it may be killing its worker", deaths, r.Status, r.Reason)
	}
	return deaths
}

// TestKillers: a job that kills its worker is dead-lettered after a bounded number of
// deaths, however early or late it does that, and however soon the worker restarts.
func TestKillers(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	for name, row := range map[string]struct {
		after, restart time.Duration
		most           int // deaths
	}{
		"within milliseconds":                         {5 * time.Millisecond, 5 * time.Second, 17},
		"within milliseconds, after a slow reboot":    {5 * time.Millisecond, 2 * time.Minute, 17},
		"after seconds":                               {7 * time.Second, 5 * time.Second, 17},
		"after minutes":                               {3 * time.Minute, 5 * time.Second, 11},
		"after more minutes than between two touches": {25 * time.Minute, 5 * time.Second, 11},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.Put("killer", "killer", "")
				deaths := killed(b, job.Kinds{}, row.restart, func(ctx context.Context, die func()) {
					if rig.SleepFor(ctx, row.after) {
						die()
					}
				})
				if t.Logf("poison after %d deaths", deaths); deaths > row.most || deaths < rig.MaxChargedExits {
					t.Errorf("poison after %d deaths, want %d to %d", deaths, rig.MaxChargedExits, row.most)
				}
			})
		})
	}
}

// TestKillerAmong31HealthyJobs: 31 healthy jobs share a worker with a job that kills it
// within milliseconds of every start. Each of them is done, whether or not it reports.
func TestKillerAmong31HealthyJobs(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.AddRecorder()
		const healthy = 31
		b.Put("killer", "killer", "")
		work := &rig.Steps{N: 10, Each: time.Second}
		silent := job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
			if !rig.SleepFor(ctx, 45*time.Second) {
				return nil, context.Cause(ctx)
			}
			return []byte("done"), nil
		})
		for i := range healthy {
			b.Put(fmt.Sprintf("healthy-%d", i), []string{"steps", "silent"}[i%2], "")
		}
		kinds := job.Kinds{"steps": work, "silent": silent}
		deaths := killed(b, kinds, 5*time.Second, func(ctx context.Context, die func()) {
			if rig.SleepFor(ctx, 5*time.Millisecond) {
				die()
			}
		}, func(c *worker.Config) { c.Concurrency = 32 })
		t.Logf("poison after %d deaths", deaths)
		b.Start("vm_0", kinds)
		b.WaitFor("no message left", 4*time.Hour, func() bool { return b.MessagesLeft() == 0 })
		for i := range healthy {
			b.CheckOutcome(t, fmt.Sprintf("healthy-%d", i), checkpoint.Done)
		}
	})
}

// TestSaveOutlastsTheVM: a state takes longer to save than each VM lives. Although the
// workers had run for long when they started the job, at most one of their unclean
// exits is charged to it.
func TestSaveOutlastsTheVM(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const deaths = 15
		state := make([]byte, 2*rig.SmallState)
		large := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			saved, _, _ := j.Saved()
			for i := len(saved) / len(state); i < 3; i++ {
				if !rig.SleepFor(ctx, 2*time.Second) {
					return nil, context.Cause(ctx)
				}
				j.Report(job.Progress{State: make([]byte, (i+1)*len(state))})
			}
			return []byte("done"), nil
		})
		kinds := job.Kinds{"large": large}
		var healed atomic.Bool
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutBlob && c.Container == b.Names.Records && c.Size > rig.SmallState && !healed.Load() {
				return storage.Fault{DropRequest: true, Before: time.Minute}
			}
			return storage.Fault{}
		})
		waits := b.Start("vm_0", kinds, func(c *worker.Config) { c.Metadata = nil })
		time.Sleep(rig.SteadyFor)
		b.Put("a", "large", "")
		for i := range deaths {
			p := waits
			b.WaitFor("the job's start", 2*time.Minute, func() bool { return len(p.Log.Find("job started")) > 0 })
			waits = b.Start(fmt.Sprintf("vm_%d", i+1), kinds, func(c *worker.Config) { c.Metadata = nil })
			time.Sleep(35 * time.Second)
			p.Kill()
		}
		r := b.Record("a")
		if r.Status == checkpoint.Poison || r.ChargedExits > 1 || r.HasState() {
			t.Errorf("record after %d deaths = %s, %d unclean exits charged, %d early, state %t, want it running, at most 1, and no state", deaths,
				r.Status, r.ChargedExits, r.EarlyExits, r.HasState())
		}
		healed.Store(true)
		b.WaitDone("a", 5*time.Minute)
	})
}
