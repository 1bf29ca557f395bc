package evictions

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestNoticeDuringADrain: a more urgent notice shortens an active drain, including
// the deadline that the handler sees; a less urgent one changes nothing.
func TestNoticeDuringADrain(t *testing.T) {
	for _, tt := range []struct {
		name          string
		first, second func(b *rig.Bed)
		least, most   time.Duration // from the second notice to the release
	}{
		{
			"an eviction that starts",
			func(b *rig.Bed) { b.Announce("Reboot", rig.ByUser, rig.In(15*time.Minute)) },
			func(b *rig.Bed) { b.Announce("Preempt", func(e *imds.Event) { e.Status = "Started" }) },
			0, 2100 * time.Millisecond,
		},
		{
			"an eviction in two seconds",
			func(b *rig.Bed) { b.Announce("Terminate", rig.ByUser, rig.In(5*time.Minute)) },
			func(b *rig.Bed) { b.Announce("Preempt", rig.In(2*time.Second)) },
			0, 2500 * time.Millisecond,
		},
		{
			"an event that leaves more time",
			func(b *rig.Bed) { b.Announce("Preempt", rig.In(8*time.Second)) },
			func(b *rig.Bed) { b.Announce("Reboot", rig.ByUser, rig.In(15*time.Minute)) },
			2 * time.Second, 4 * time.Second,
		},
	} {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			stubborn := rig.NewStubborn()
			defer stubborn.Finish()
			var deadlines [2]atomic.Int64 // that the handler sees after each notice, in Unix milliseconds
			seen := make(chan struct{})
			watching := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
				<-ctx.Done()
				deadlines[0].Store(job.StopOf(ctx).Deadline.UnixMilli())
				<-seen
				deadlines[1].Store(job.StopOf(ctx).Deadline.UnixMilli())
				return nil, context.Cause(ctx)
			})
			b.Put("stubborn", "stubborn", "")
			b.Put("watching", "watching", "")
			p := b.Start("vm_0", job.Kinds{"stubborn": stubborn, "watching": watching})
			b.WaitFor("some work", time.Minute, func() bool { return len(p.Log.Find("job started")) == 2 })
			tt.first(b)
			b.WaitFor("stopped", 3*time.Second, func() bool { return deadlines[0].Load() > 0 })
			time.Sleep(time.Second)
			second := time.Now()
			tt.second(b)
			b.WaitFor("the second notice is seen", 2*time.Second, func() bool { return len(p.Log.Find("scheduled event names this VM")) == 2 })
			close(seen)
			b.WaitFor("released", 10*time.Second, func() bool { return b.Record("stubborn").Status == checkpoint.Open })
			if took := time.Since(second); took < tt.least || took > tt.most {
				t.Errorf("%s: released %s after it was announced, want %s to %s", tt.name, took, tt.least, tt.most)
			}
			if shortened := deadlines[1].Load() < deadlines[0].Load(); shortened != (tt.least == 0) || deadlines[1].Load() > deadlines[0].Load() {
				t.Errorf("%s: handler's deadline moved by %dms, want it nearer: %t", tt.name, deadlines[1].Load()-deadlines[0].Load(), tt.least == 0)
			}
		})
	}
}

// TestEvictionWhileAJobIsHandedOver: an eviction also shortens the drain of a single
// job, which began because the job cannot finish before an announced event.
func TestEvictionWhileAJobIsHandedOver(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		stubborn := rig.NewStubborn()
		defer stubborn.Finish()
		b.Put("stubborn", "stubborn", "")
		b.Put("long", "steps", "")
		p := b.Start("vm_0", job.Kinds{"stubborn": stubborn, "steps": &rig.Steps{N: 60, Each: time.Second}})
		b.WaitFor("some work", time.Minute, func() bool { return len(p.Log.Find("job started")) == 2 })
		b.Announce("Terminate", rig.In(5*time.Minute))
		b.WaitFor("claiming ended", 5*time.Second, func() bool {
			return len(p.Log.Find("claiming ended; jobs that will not be done in time are handed over")) == 1
		})
		evicted := time.Now()
		b.Announce("Preempt", func(e *imds.Event) { e.Status = "Started" })
		b.WaitFor("released", 10*time.Second, func() bool { return b.Record("stubborn").Status == checkpoint.Open })
		if took := time.Since(evicted); took > 2100*time.Millisecond {
			t.Errorf("eviction to release = %s, want at most one poll and the remaining second", took)
		}
	})
}
