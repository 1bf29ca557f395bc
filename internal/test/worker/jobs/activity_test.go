package jobs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// TestHeartbeatTellsActivity: a heartbeat has its worker's activity in the last ten
// minutes: jobs done and failed with their times, and the use of the slots.
func TestHeartbeatTellsActivity(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		failed := false
		kinds := job.Kinds{"slow": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
			time.Sleep(8 * time.Second)
			if !failed {
				failed = true
				return nil, errors.New("once")
			}
			return nil, nil
		})}
		b.Start("vm_0", kinds, func(c *worker.Config) { c.Concurrency = 1 })
		b.Put("one", "slow", "")
		time.Sleep(2 * time.Minute)
		p, ok, err := b.Workers.Read(t.Context(), "vm_0-11112222-0")
		if err != nil || !ok {
			t.Fatalf("heartbeat = %t, %v", ok, err)
		}
		did := p.Activity
		if did.Slots != 1 || did.Times.Handler.Round(time.Second) != 16*time.Second || did.Times.Total() < 90*time.Second {
			t.Errorf("slots = %d, %+v, want 1 in which handlers ran for 16 s", did.Slots, did.Times)
		}
		if len(did.Kinds) != 1 {
			t.Fatalf("kinds = %+v, want one", did.Kinds)
		}
		k := did.Kinds[0]
		if k.Name != "slow" || k.Done != 1 || k.Failed != 1 || k.Efforts.Committed != 8*time.Second || k.Efforts.Failed != 8*time.Second {
			t.Errorf("kind = %+v, want slow with a job done and a failure of 8 s each", k)
		}
		if got := k.Durations.Quantile(0.5); got < 16*time.Second || got > 20*time.Second {
			t.Errorf("run time of the job = %s, want 16 s to 19 %% more", got)
		}
	})
}
