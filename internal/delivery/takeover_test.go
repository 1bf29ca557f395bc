package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
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

// TestNextWriteOfARun: while a handler reports no state and began with none, it is expected to need as long again for its first.
// Otherwise the next write is expected an interval later, or after the longest silence.
func TestNextWriteOfARun(t *testing.T) {
	const first, seen = 28 * time.Second, 30 * time.Second // report: the worker looks every 5 s
	interval := checkpoint.DefaultPolicy().IntervalFor(checkpoint.Situation{})
	for name, row := range map[string]struct {
		resumes, reports bool
		want             time.Duration
	}{
		"no state":              {false, false, checkpoint.DefaultPolicy().TouchEvery},
		"resumed":               {true, false, interval},
		"reported":              {false, true, seen},
		"resumed, and reported": {true, true, seen},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				if err := sleeps(ctx, first); err != nil {
					return nil, err
				}
				if row.reports {
					j.Report(job.Progress{State: []byte("new")})
				}
				return nil, sleeps(ctx, 15*time.Minute)
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				if row.resumes {
					b.putOpen("a", "k", checkpoint.Snapshot{State: []byte("s")})
				} else {
					b.Put("a", "k", "")
				}
				wait := b.begin(b.claim())
				time.Sleep(11 * time.Minute) // the second touch
				if r := b.Record("a"); r.NextWrite != row.want || r.HasState() != (row.resumes || row.reports) {
					t.Errorf("next write in %s, state %t; want %s", r.NextWrite, r.HasState(), row.want)
				}
				wait()
			})
		})
	}
}

// TestLossOfATakeover: the work that a dead worker lost is estimated by the visibility timeout of the message: 30 s, renewed every 10 s.
// The message of a duplicate proves nothing, and half of the time up to the next write is taken.
func TestLossOfATakeover(t *testing.T) {
	const next = 10 * time.Minute
	for name, row := range map[string]struct {
		waits time.Duration // from the last write of the record to the claim
		other bool          // another message
		want  time.Duration
	}{
		"it died at once":    {20 * time.Second, false, 0},
		"before a renewal":   {26 * time.Second, false, 3 * time.Second},
		"after some":         {90 * time.Second, false, 65 * time.Second},
		"it waited for long": {time.Hour, false, next / 2},
		"another message":    {time.Hour, true, next / 2},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
				e := queue.Envelope{ID: "a", Kind: "k", Resume: true}
				b.put(e)
				d := former(e)
				if !row.other {
					d.MessageID = b.Server.Messages(b.Names.Queue)[0].ID
				}
				c := b.Records.Fresh(d, "vm_9-boot-1")
				c.SetFacts(func(f checkpoint.Facts) checkpoint.Facts {
					f.Spent, f.NextWrite = ledger.Delivery{Slot: time.Minute, Handler: time.Minute}, next
					return f
				})
				if err := c.Touch(t.Context(), checkpoint.Snapshot{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(row.waits)
				b.runOne()
				if r := b.Record("a"); r.Status != checkpoint.Done || r.Ledger.Redone != time.Minute+row.want || r.Ledger.Exits != 1 {
					t.Errorf("record = %s, %s redone, %d exits; want it done, 1m0s and %s, one", r.Status, r.Ledger.Redone, r.Ledger.Exits, row.want)
				}
			})
		})
	}
}

// TestEvictionsOfALedger: the ledger counts the stops because of an eviction.
func TestEvictionsOfALedger(t *testing.T) {
	for reason, want := range map[job.Reason]int{job.Evicted: 1, job.Drained: 0, "": 0} {
		t.Run(string(reason), func(t *testing.T) {
			kinds := handle(func(ctx context.Context, _ *job.Job) ([]byte, error) {
				return nil, errors.Join(sleeps(ctx, time.Minute), job.Interrupted(errors.New("wait")))
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				wait := b.begin(b.claim())
				time.Sleep(30 * time.Second)
				if reason != "" {
					d := drain.New(reason, context.Canceled, time.Now(), 10*time.Second)
					b.config.Drains.Impose(d)
					b.stop(d)
				}
				wait()
				if r := b.Record("a"); r.Status != checkpoint.Open || r.Ledger.Evictions != want || r.Ledger.Exits != 0 {
					t.Errorf("record = %s, %d evictions, %d exits; want it open, %d, none", r.Status, r.Ledger.Evictions, r.Ledger.Exits, want)
				}
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

// TestEndOfTheJobBefore: the ledger of a job has the time that the end of the job before took after its last write.
func TestEndOfTheJobBefore(t *testing.T) {
	kinds := handle(func(ctx context.Context, _ *job.Job) ([]byte, error) { return nil, sleeps(ctx, time.Second) })
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.delay(5*time.Second, func(c storage.Call) bool { return c.Operation == storage.OpDeleteMessage })
		for i, want := range []time.Duration{0, 5 * time.Second} {
			id := fmt.Sprint("job-", i)
			b.Put(id, "k", "")
			b.runOne()
			if r := b.Record(id); r.Status != checkpoint.Done || r.Ledger.Overhead != want {
				t.Errorf("record of %s = %s, overhead %s; want it done, %s", id, r.Status, r.Ledger.Overhead, want)
			}
		}
	})
}
