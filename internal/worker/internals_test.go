package worker_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/worker/sources"
	"github.com/spotworker/spotworker/job"
)

// TestStoppedJobsAreForgotten: a worker keeps no data about jobs that it stopped one by
// one, so that it can run for months.
func TestStoppedJobsAreForgotten(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		silent := job.WithLimits(job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}), job.Limits{MaxSilence: time.Second})
		b.Put("a", "silent", "")
		p := b.Start("vm_0", job.Kinds{"silent": silent}, func(c *worker.Config) { c.Metadata = nil })
		b.WaitFor("poison", time.Hour, func() bool { return len(b.PoisonMessages()) == 1 })
		time.Sleep(time.Second)
		if n := p.Drains(); n != 0 {
			t.Errorf("drains kept = %d, want none", n)
		}
	})
}

// TestNoticeBeforeTheFirstPhase: the first document may announce an eviction before
// Run has begun a phase. The worker then takes no work, and ends as always.
func TestNoticeBeforeTheFirstPhase(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.PutSteps(1)
		p := b.Start("vm_0", job.Kinds{"steps": &rig.Steps{N: 1, Each: time.Millisecond}}, func(c *worker.Config) { c.Metadata = nil })
		p.Stop()
		at := &rig.AtState{}
		c := p.Config
		c.Observe = at.Observe
		w, err := worker.New(c)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		w.Evict(preempt.Notice{EventID: "a", Type: "Preempt", SeenAt: now, Deadline: now.Add(10 * time.Second)})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if want := []string{"shutdown", "stopped"}; !slices.Equal(slices.Compact(at.States), want) {
			t.Errorf("states = %v, want %v", at.States, want)
		}
	})
}

// TestOldReadsAreRepeated: a worker whose start took long reads the requests of operators again
// before it takes jobs.
func TestOldReadsAreRepeated(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, func(c *worker.Config) { c.Metadata = nil })
		b.WaitFor("process", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
		p.Stop()
		for age, want := range map[time.Duration]bool{0: true, worker.LastRunHolds: true, worker.LastRunHolds + time.Second: false} {
			if got := p.TakesRead(t.Context(), age); got != want {
				t.Errorf("a read of %s ago is used: %t, want %t", age, got, want)
			}
		}
	})
}

// TestLossEstimateLearns: a worker counts how its own last run ended, and soon after its
// start and then every LossesEvery how the runs of all other workers ended, with one call.
func TestLossEstimateLearns(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		first := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		time.Sleep(time.Hour)
		first.Kill()
		other := b.Start("vm_1", job.Kinds{"echo": rig.Echo})
		time.Sleep(time.Minute)
		other.Kill()

		again := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		time.Sleep(worker.LossesFirst / 2)
		if got := again.Losses(); got.Sudden != 1 || got.Watched < 59*time.Minute || got.Watched > time.Hour {
			t.Errorf("losses half a minute after the start = %+v, want the last run of an hour, and its sudden end", got)
		}
		b.Server.SetFullPages()
		b.Server.ResetCounts()
		const window = (worker.LossesFirst + worker.LossesEvery) * 5 / 4
		time.Sleep(window)
		if got := again.Losses(); got.Sudden != 2 || got.Warned != 0 {
			t.Errorf("losses after a sample = %+v, want the other VM's as well", got)
		}
		if got := b.Server.Counts()["ListBlobs"]; got != 2 {
			t.Errorf("listings in %s = %d, want 2", window, got)
		}
	})
}

// TestBlindWorkerSavesOften: while the metadata service does not answer, an eviction
// would come without a notice. So the worker saves each state at once, and then at
// the shortest interval until the service answers again.
func TestBlindWorkerSavesOften(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 3000, Each: time.Second}
		b.Put("a", "steps", "")
		const save = 50 * time.Millisecond
		p := b.Start("vm_0", job.Kinds{"steps": work}, func(c *worker.Config) {
			c.Policy = checkpoint.DefaultPolicy()
		})
		b.Server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: save} })
		b.WaitFor("two saves, which show their cost", time.Minute, func() bool { return len(p.Log.Find("checkpoint saved")) >= 2 })
		time.Sleep(10 * time.Minute)
		withNotices := len(p.Log.Find("checkpoint saved"))
		b.Metadata.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Status: 500} })
		time.Sleep(worker.BlindFor + rig.RecheckEvery + 10*time.Second)
		if got := len(p.Log.Find("checkpoint saved")) - withNotices; got < 1 {
			t.Errorf("saves within %s of the outage = %d, want one at once", worker.BlindFor, got)
		}
		before := len(p.Log.Find("checkpoint saved"))
		time.Sleep(time.Minute)
		if got := len(p.Log.Find("checkpoint saved")) - before; got < 10 || got > 13 {
			t.Errorf("saves in a minute without notices = %d, want one every 5 s", got)
		}
		b.Metadata.OnRequest(nil)
		time.Sleep(10 * time.Second)
		before = len(p.Log.Find("checkpoint saved"))
		time.Sleep(time.Minute)
		if got := len(p.Log.Find("checkpoint saved")) - before; got > 1 {
			t.Errorf("saves in a minute with notices again = %d, want one at most", got)
		}
		lines := p.Log.Find("checkpoint saved")
		if interval := time.Duration(lines[withNotices-1]["interval"].(float64)); interval < 30*time.Second || interval > 5*time.Minute {
			t.Errorf("interval with notices = %s, want about that of Young and Daly for saves that take %s", interval, save)
		}
	})
}

// TestTooLargeStream: a streamed state over the limit dead-letters its job with that
// reason, whether the worker finds it while the handler runs or after it failed.
func TestTooLargeStream(t *testing.T) {
	if job.MaxStream != checkpoint.MaxStream {
		t.Errorf("job.MaxStream = %d, checkpoint.MaxStream = %d, want the same", job.MaxStream, checkpoint.MaxStream)
	}
	// Stands for a stream of more than 32 GiB, which takes too long to read here.
	tooLarge := job.Progress{Stream: func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(bytes.NewReader(rig.LargeState(1)), iotest.ErrReader(checkpoint.ErrTooLarge))), nil
	}}
	for name, h := range map[string]job.HandlerFunc{
		"while the handler runs": func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(tooLarge)
			<-ctx.Done()
			if stop := job.StopOf(ctx); stop == nil || stop.Reason != job.Faulty {
				t.Errorf("stopped because of %v, want an unusable state", stop)
			}
			return nil, ctx.Err()
		},
		"after the handler failed": func(_ context.Context, j *job.Job) ([]byte, error) {
			j.Report(tooLarge)
			return nil, errors.New("no luck")
		},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.Put("a", "h", "")
				p := b.Start("vm_0", job.Kinds{"h": h})
				b.WaitFor("poison", time.Minute, func() bool { return len(b.PoisonMessages()) == 1 && b.MessagesLeft() == 0 })
				r := b.Record("a")
				if r.Status != checkpoint.Poison || r.HasState() || !strings.Contains(r.Reason, "too large") {
					t.Errorf("record = %s %q, with a state: %t, want poison with its reason, without", r.Status, r.Reason, r.HasState())
				}
				if m := b.PoisonMessages()[0]; !strings.Contains(m.Reason, "too large") || m.ID != "a" {
					t.Errorf("poison message = %+v, want the reason", m)
				}
				time.Sleep(time.Second)
				if jobs := p.Jobs(); len(jobs) != 0 {
					t.Errorf("running jobs = %v, want none", jobs)
				}
			})
		})
	}
}

// TestValidate: New names the fault of a configuration.
func TestValidate(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		good := func() worker.Config {
			home := *b.Stores
			return worker.Config{Settings: delivery.Settings{
				Stores: &home, Kinds: job.Kinds{"echo": rig.Echo},
			}}
		}
		tests := []struct {
			name   string
			change func(*worker.Config)
			want   string // part of the error; empty for none
		}{
			{"good", func(*worker.Config) {}, ""},
			{"no stores", func(c *worker.Config) { c.Stores.Records = nil }, "queues and containers"},
			{"no kinds", func(c *worker.Config) { c.Kinds = nil }, "no kind"},
			{"bad kind", func(c *worker.Config) { c.Kinds = job.Kinds{"a b": rig.Echo} }, `"a b"`},
			{"bad limits", func(c *worker.Config) { c.Kinds = job.Kinds{"k": job.WithLimits(rig.Echo, job.Limits{MaxRun: -1})} },
				`limits of kind "k"`},
			{"unknown default kind", func(c *worker.Config) { c.DefaultKind = "x" }, `"x"`},
			{"concurrency too high", func(c *worker.Config) { c.Concurrency = 10_001 }, "1 to 10000"},
			{"negative concurrency", func(c *worker.Config) { c.Concurrency = -1 }, "1 to 10000"},
			{"interval too short", func(c *worker.Config) { c.Policy = checkpoint.Policy{Interval: 1} }, "100ms to 10m0s"},
			{"eviction rate too high", func(c *worker.Config) { c.Policy = checkpoint.Policy{EvictionRate: 5} }, "up to 1 an hour"},
			{"two queues", func(c *worker.Config) { c.TakeFrom = []sources.Choice{sources.OnDemand, sources.Spot} }, ""},
			{"one queue twice", func(c *worker.Config) { c.TakeFrom = []sources.Choice{sources.Spot, sources.Spot} }, "twice"},
			{"unknown queue to take from", func(c *worker.Config) { c.TakeFrom = []sources.Choice{"poison"} }, "queues and containers"},
			{"no storage", func(c *worker.Config) { c.Stores = nil }, "queues and containers"},
			{"moves jobs", func(c *worker.Config) { c.MoveAfter = 1 }, ""},
			{"moves jobs without an on-demand queue", func(c *worker.Config) { c.MoveAfter, c.Stores.OnDemand = 1, nil }, "no on-demand queue"},
			{"moves jobs after -1 interruptions", func(c *worker.Config) { c.MoveAfter = -1 }, "-1 interruptions"},
			{"unknown acknowledger", func(c *worker.Config) { c.Acknowledge = "all" }, `"all"`},
			{"visibility too short", func(c *worker.Config) { c.Visibility = time.Second }, "give 3s to 5m0s"},
			{"visibility too long", func(c *worker.Config) { c.Visibility = time.Hour }, "give 3s to 5m0s"},
			{"drain budget too short", func(c *worker.Config) { c.DrainBudget = time.Millisecond }, "at least 1s"},
			{"a path as the VM name", func(c *worker.Config) { c.VMName = "a/b" }, "VM name"},
			{"a long VM name", func(c *worker.Config) { c.VMName = strings.Repeat("a", 81) }, "VM name"},
		}
		for _, tt := range tests {
			c := good()
			tt.change(&c)
			_, err := worker.New(c)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("%s: New = %v, want nil", tt.name, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%s: New = %v, want an error that names %q", tt.name, err, tt.want)
			}
		}
	})
}
