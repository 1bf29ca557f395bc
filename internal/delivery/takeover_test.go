package delivery_test

import (
	"context"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestNextWriteOfAClaim: a claim expects to write again after its first interval; after an unclean exit without progress only
// when the first touch is due. So the next owner can estimate the loss if this one dies.
func TestNextWriteOfAClaim(t *testing.T) {
	state := checkpoint.Snapshot{State: []byte("s"), Fraction: 0.25}
	save := func(ctx context.Context, c *checkpoint.Claim) error { return c.Save(ctx, state) }
	release := func(ctx context.Context, c *checkpoint.Claim) error { return c.Release(ctx, state) }
	fail := func(ctx context.Context, c *checkpoint.Claim) error { return c.Fail(ctx, checkpoint.Snapshot{}, "no") }
	touch := checkpoint.DefaultPolicy().FirstAfter
	interval := checkpoint.DefaultPolicy().IntervalFor(checkpoint.Situation{})
	if touch == interval {
		t.Fatalf("the first touch and the interval are both %s", touch)
	}
	for name, row := range map[string]struct {
		before func(ctx context.Context, c *checkpoint.Claim) error // what the last owner wrote
		exits  int                                                  // before it
		want   time.Duration
	}{
		"died without progress": {nil, 1, touch},
		"died twice":            {nil, 2, touch},
		"died with progress":    {save, 1, interval},
		"released":              {release, 1, interval},
		"failed":                {fail, 1, interval},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, _ *job.Job) ([]byte, error) { return nil, sleeps(ctx, time.Minute) })
			onBench(t, kinds, func(t *testing.T, b *bench) {
				time.Sleep(2 * rig.SteadyFor)
				b.putCrashed("a", row.exits, true)
				if row.before != nil {
					found := b.Record("a")
					work := queue.Envelope{ID: "a", Kind: "k", Resume: true}.Work()
					d := checkpoint.Delivery{ID: "a", Kind: "k", PayloadHash: work, MessageID: found.MessageID}
					c, err := b.Records.Acquire(t.Context(), d, found, "vm_9-boot-1")
					if err == nil {
						err = row.before(t.Context(), c)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				wait := b.begin(b.claim())
				time.Sleep(time.Second)
				r := b.Record("a")
				if r.Owner != "vm_0-boot-1" || r.NextWrite != row.want {
					t.Errorf("record of %s, next write in %s after %d unclean exits; want %s", r.Owner, r.NextWrite, r.UncleanExits(), row.want)
				}
				wait()
			})
		})
	}
}

// TestTimesOfARun: the useful time of a job ends at its last recorded report, and its run time at the return of the handler,
// however late the worker sees the one and records the other.
func TestTimesOfARun(t *testing.T) {
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		if err := sleeps(ctx, 11*time.Second); err != nil {
			return nil, err
		}
		j.Report(job.Progress{State: []byte("s"), Fraction: 0.5})
		return nil, sleeps(ctx, 2*time.Minute-11*time.Second)
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		wait := b.begin(b.claim())
		time.Sleep(110 * time.Second)
		if r := b.Record("a"); !r.HasState() || r.Ledger.Useful != 11*time.Second {
			t.Errorf("record with a state: %t, %s useful; want the 11s until the report", r.HasState(), r.Ledger.Useful)
		}
		end := b.down(on(b.Names.Records, "PutBlob", "SetBlobMetadata"))
		time.Sleep(30 * time.Second)
		end()
		if wait(); b.Record("a").RunTime != 2*time.Minute || b.Record("a").Ledger.Overhead < 15*time.Second {
			t.Errorf("run time = %s, overhead = %s; want 2m0s, and the outage", b.Record("a").RunTime, b.Record("a").Ledger.Overhead)
		}
	})
}
