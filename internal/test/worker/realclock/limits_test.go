package realclock

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// atOnce is a handler that counts how many of its jobs run at once at most.
type atOnce struct{ running, most atomic.Int64 }

func (a *atOnce) Run(ctx context.Context, _ *job.Job) ([]byte, error) {
	n := a.running.Add(1)
	defer a.running.Add(-1)
	for most := a.most.Load(); n > most && !a.most.CompareAndSwap(most, n); most = a.most.Load() {
	}
	if !rig.SleepFor(ctx, 50*time.Millisecond) {
		return nil, context.Cause(ctx)
	}
	return []byte("done"), nil
}

// TestLimits: handlers that are silent, run too long, or ignore that they are stopped end as
// poison with their reason, while others end well, no more at once than their kind allows.
func TestLimits(t *testing.T) {
	t.Parallel()
	rig.RunInRealTime(t, func(t *testing.T, b *rig.Bed) {
		waits := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			j.Report(job.Progress{State: []byte("here")})
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		restless, stubborn, few := rig.NewRestless(), rig.NewStubborn(), &atOnce{}
		over := job.Limits{MaxRun: time.Second}
		kinds := job.Kinds{
			"silent":   job.WithLimits(waits, job.Limits{MaxSilence: time.Second, MaxFailures: 1}),
			"endless":  job.WithLimits(&rig.SteadyReporter{}, over),
			"restless": job.WithLimits(restless, over),
			"stubborn": job.WithLimits(stubborn, over),
			"few":      job.WithLimits(few, job.Limits{Concurrency: 2}),
		}
		reasons := map[string]string{"silent": "silent for", "endless": "ran too long", "restless": "ran too long", "stubborn": "ran too long"}
		for kind := range reasons {
			b.Put(kind, kind, "")
		}
		for i := range 8 {
			b.Put(fmt.Sprintf("few-%d", i), "few", "")
		}
		p := b.Start("vm_0", kinds, quick, func(c *worker.Config) { c.Concurrency = 16 })
		for i := range 8 {
			b.WaitDone(fmt.Sprintf("few-%d", i), patience)
		}
		for kind, reason := range reasons {
			b.WaitFor(kind+" is poison", patience, func() bool { return b.Record(kind).Status == checkpoint.Poison })
			if r := b.Record(kind); !strings.Contains(r.Reason, reason) || !r.HasState() {
				t.Errorf("%s = %q, state %t, want %q with its state", kind, r.Reason, r.HasState(), reason)
			}
		}
		if n := few.most.Load(); n > 2 {
			t.Errorf("jobs of a kind at once = %d, want 2 at most", n)
		}
		restless.Finish()
		stubborn.Finish()
		p.Stop()
	})
}
