package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// TestUnknownKindWaitsAnHour: a job of a kind that no worker has is dead-lettered
// only after an hour, in which a worker that has the kind may start.
func TestUnknownKindWaitsAnHour(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Put("a", "render", "")
		b.Put("b", "render", "")
		b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		time.Sleep(59 * time.Minute)
		if n := len(b.PoisonMessages()); n != 0 || b.MessagesLeft() != 2 {
			t.Fatalf("after 59 min %d messages are poison and %d on the queue, want 0 and 2", n, b.MessagesLeft())
		}
		b.WaitFor("both poisoned", 8*time.Minute, func() bool { return len(b.PoisonMessages()) == 2 && b.MessagesLeft() == 0 })
		for _, id := range []string{"a", "b"} {
			if r := b.Record(id); r.Status != checkpoint.Poison {
				t.Errorf("record of %s is %s, want poison", id, r.Status)
			}
		}
	})
}

// TestKindOfABusyWorker: only one of several workers has a kind, and is busy for up
// to hours. The jobs of that kind wait, are never dead-lettered, and start soon
// after a slot is free.
func TestKindOfABusyWorker(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	for _, row := range []struct {
		lacking int
		long    time.Duration
		within  time.Duration // mean time until a free slot has its next job; which worker claims first is random
	}{{1, 2 * time.Hour, 20 * time.Second}, {8, 5 * time.Minute, time.Minute}} {
		t.Run(fmt.Sprint(row.lacking), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				const jobs = 10
				b.Jitter = waitsByTime
				b.Put("long", "render", "")
				work := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
					took := 20 * time.Second
					if j.ID == "long" {
						took = row.long
					}
					rig.SleepFor(ctx, took)
					return nil, context.Cause(ctx)
				})
				b.Start("vm_0", job.Kinds{"render": work}, func(c *worker.Config) { c.Concurrency = 1 })
				b.WaitFor("the long job", time.Minute, func() bool { return b.Record("long").Status == checkpoint.Running })
				for i := range row.lacking {
					b.Start(fmt.Sprintf("other_%d", i), job.Kinds{"echo": rig.Echo})
				}
				for i := range jobs {
					b.Put(fmt.Sprintf("job-%d", i), "render", "")
				}
				b.WaitDone("long", row.long+time.Minute)
				b.WaitFor("all done", jobs*time.Minute, func() bool { return b.MessagesLeft() == 0 })
				var ends []time.Time
				for i := range jobs {
					ends = append(ends, b.Record(fmt.Sprintf("job-%d", i)).EndedAt)
				}
				slices.SortFunc(ends, time.Time.Compare)
				before, most, sum := b.Record("long").EndedAt, time.Duration(0), time.Duration(0)
				for _, end := range ends {
					idle := end.Sub(before) - 20*time.Second
					before, most, sum = end, max(most, idle), sum+idle
				}
				t.Logf("%d workers lack the kind: a free slot waited %s for a job, at most %s", row.lacking, (sum / jobs).Round(time.Millisecond),
					most.Round(time.Millisecond))
				if sum/jobs > row.within {
					t.Errorf("a free slot waited %s for a job, want at most %s on average", sum/jobs, row.within)
				}
				if n := len(b.PoisonMessages()); n != 0 {
					t.Errorf("%d jobs are poison, want none", n)
				}
			})
		})
	}
}

// TestManyOfABusyWorker: 1,000 messages of a kind that only a busy worker has do not
// make another one spin, and that one does its own jobs at the same time.
func TestManyOfABusyWorker(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const jobs, minutes = 1000, 10
		b.Put("long", "render", "")
		b.Start("vm_1", job.Kinds{"render": newForever()}, func(c *worker.Config) { c.Concurrency = 1 })
		b.WaitFor("the long job", time.Minute, func() bool { return b.Record("long").Status == checkpoint.Running })
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "render", "")
		}
		b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		time.Sleep(time.Minute)
		b.Server.SetFullPages()
		b.Server.ResetCounts()
		time.Sleep(minutes * time.Minute)
		counts := b.Server.Counts()
		perSecond := float64(counts["GetMessages"]+counts["UpdateMessage"]) / (minutes * 60)
		t.Logf("%d messages of another worker's kind cost %.1f calls a second, %.2f a message and minute; heartbeats were listed %d "+
			"times in %d min",
			jobs, perSecond, perSecond*60/jobs, counts["ListBlobs"], minutes)
		if perSecond > 2.2*float64(time.Second/rig.DeferEvery) {
			t.Errorf("calls per second = %.1f, want at most a claim and an update each %s", perSecond, rig.DeferEvery)
		}
		if n := counts["ListBlobs"]; n > minutes*2+2 {
			t.Errorf("heartbeats listed %d times in %d min, want once in %s", n, minutes, rig.SampleEvery)
		}
		for i := range 20 {
			b.Put(fmt.Sprintf("own-%d", i), "echo", "1")
		}
		for i := range 20 {
			b.WaitDone(fmt.Sprintf("own-%d", i), 10*time.Second)
		}
	})
}

// TestKindInProgress: a job in progress is never dead-lettered for lack of a worker
// with its kind. It resumes when such a worker starts.
func TestKindInProgress(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		work := &rig.Steps{N: 3 * 3600, Each: time.Second}
		b.PutText(put64(`{"v":1,"id":"a","kind":"render","put_back_since":"%s"}`, time.Now().UTC().Format(time.RFC3339)))
		first := b.Start("vm_1", job.Kinds{"render": work})
		time.Sleep(2 * time.Hour)
		e, err := queue.Decode(b.Server.Messages(b.Names.Queue)[0].Text)
		if err != nil || !e.PutBackSince.IsZero() {
			t.Errorf("after two hours of work the message is %+v, %v, want put_back_since cleared", e, err)
		}
		first.Kill()
		last := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		time.Sleep(5 * time.Hour)
		if r := b.Record("a"); r.Status.Final() || r.Fraction < 0.6 {
			t.Fatalf("record after five hours without its kind = %s with %.2f done, want it waiting", r.Status, r.Fraction)
		}
		if got := len(last.Log.Find("job in progress waits for a worker with its kind: start one, or purge the job's message")); got == 0 {
			t.Error("the log does not report a job in progress without a worker")
		}
		b.Start("vm_2", job.Kinds{"render": work})
		b.WaitFor("the job resumes", 7*time.Minute, func() bool { return b.Record("a").Generation == 2 })
		b.WaitDone("a", 2*time.Hour)
	})
}

// TestKindOfAnOlderVersion: a message of an unknown kind is not dead-lettered while
// there is a heartbeat that lists no kinds, as older versions write it. The hour
// begins when the last such heartbeat is outdated.
func TestKindOfAnOlderVersion(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		ctx, older := context.WithCancel(t.Context())
		var beats sync.WaitGroup
		beats.Go(func() {
			for ok := true; ok; ok = rig.SleepFor(ctx, presence.Every) {
				if err := b.Workers.Write(t.Context(), presence.Presence{Worker: "older", State: "process", StartedAt: time.Now(),
					At: time.Now()}); err != nil {
					t.Error(err)
				}
			}
		})
		b.Put("a", "render", "")
		b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		time.Sleep(6 * time.Hour)
		older()
		beats.Wait()
		time.Sleep(58 * time.Minute)
		if r := b.Record("a"); r.Status.Final() {
			t.Fatalf("record = %s: %s; want the message requeued for an hour after the last worker that may have its kind", r.Status, r.Reason)
		}
		b.WaitFor("poison", 10*time.Minute, func() bool { return b.Record("a").Status == checkpoint.Poison })
	})
}

// TestKindWhileHeartbeatsCannotBeListed: a worker that cannot find out who has a kind hides
// its messages for some seconds, so that a worker with the kind has them soon, and does not
// spin.
func TestKindWhileHeartbeatsCannotBeListed(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpListBlobs {
				return storage.Fault{Refuse: storage.ServerBusy(0)}
			}
			return storage.Fault{}
		})
		const jobs, seconds = 200, 60
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "render", "")
		}
		lacks := b.Start("vm_0", job.Kinds{"echo": rig.Echo})
		time.Sleep(time.Minute)
		b.Server.ResetCounts()
		time.Sleep(seconds * time.Second)
		counts := b.Server.Counts()
		if perSecond := float64(counts["GetMessages"]+counts["UpdateMessage"]) / seconds; perSecond > 2.2*float64(time.Second/rig.DeferEvery) {
			t.Errorf("calls per second = %.1f, want at most a claim and an update each %s", perSecond, rig.DeferEvery)
		}
		lacks.Stop()
		b.Start("vm_1", job.Kinds{"render": rig.Echo})
		b.WaitFor("all done", 20*time.Second, func() bool { return b.MessagesLeft() == 0 })
	})
}

// counted is a handler that counts how often it is started for each id, and how
// many of one id run at once.
type counted struct {
	each time.Duration
	deaf bool // ignores its context

	mu           sync.Mutex
	starts, runs map[string]int
	most         int
}

func (c *counted) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	c.mu.Lock()
	if c.starts == nil {
		c.starts, c.runs = map[string]int{}, map[string]int{}
	}
	c.starts[j.ID]++
	c.runs[j.ID]++
	c.most = max(c.most, c.runs[j.ID])
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.runs[j.ID]--
	}()
	stopped := ctx.Done()
	if c.deaf {
		stopped = nil
	}
	select {
	case <-stopped:
		return nil, context.Cause(ctx)
	case <-time.After(c.each):
		return []byte("done"), nil
	}
}

func (c *counted) of(id string) (starts, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.starts[id], c.most
}

// TestOneIDOnOneWorker: a job that is enqueued again while its worker runs it is
// started once, and all its messages are deleted when it is done.
func TestOneIDOnOneWorker(t *testing.T) {
	for _, each := range []time.Duration{4 * time.Second, time.Minute} {
		t.Run(each.String(), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				h := &counted{each: each}
				for range 3 {
					b.Put("a", "h", "1")
				}
				b.Start("vm_0", job.Kinds{"h": h})
				time.Sleep(each / 2)
				b.Put("a", "h", "1")
				b.WaitDone("a", 5*time.Minute)
				b.WaitFor("no message", 10*time.Minute, func() bool { return b.MessagesLeft() == 0 })
				if starts, most := h.of("a"); starts != 1 || most != 1 {
					t.Errorf("starts = %d, at once = %d, want 1 and 1", starts, most)
				}
				if r := b.Record("a"); r.Generation != 1 || len(b.PoisonMessages()) != 0 {
					t.Errorf("generation = %d, %d poison messages, want 1 and 0", r.Generation, len(b.PoisonMessages()))
				}
			})
		})
	}
}

// TestOneIDThatIsAbandoned: while an abandoned handler, which ignores its context,
// still runs, its worker does not start the same job beside it.
func TestOneIDThatIsAbandoned(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		h := &counted{each: 45 * time.Second, deaf: true}
		b.Put("a", "h", "")
		b.Start("vm_0", job.Kinds{"h": job.WithLimits(h, job.Limits{MaxSilence: time.Second})})
		b.WaitFor("poison", time.Hour, func() bool { return b.Record("a").Status == checkpoint.Poison })
		time.Sleep(time.Minute)
		if starts, most := h.of("a"); starts != job.DefaultMaxFailures || most != 1 {
			t.Errorf("starts = %d, at once = %d, want %d and 1", starts, most, job.DefaultMaxFailures)
		}
	})
}

// TestChosenID: a worker looks up the outcome of a job whose id the producer chose
// before it starts the handler, on the first delivery too.
func TestChosenID(t *testing.T) {
	chosen := func(b *rig.Bed, id string) {
		if err := b.Queue.Put(b.T.Context(), queue.Envelope{ID: id, Kind: "h", ChosenID: true}, 0); err != nil {
			b.T.Fatal(err)
		}
	}
	t.Run("done before", func(t *testing.T) {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			h := &counted{each: time.Second}
			b.Start("vm_0", job.Kinds{"h": h})
			for range 5 {
				chosen(b, "a")
				b.WaitFor("no message", time.Minute, func() bool { return b.MessagesLeft() == 0 })
				synctest.Wait()
			}
			if starts, _ := h.of("a"); starts != 1 {
				t.Errorf("starts = %d, want 1", starts)
			}
		})
	})
	t.Run("on many workers at once", func(t *testing.T) {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			h := &counted{each: time.Second}
			for range 4 {
				chosen(b, "a")
			}
			for i := range 4 {
				b.Start(fmt.Sprintf("vm_%d", i), job.Kinds{"h": h}, func(c *worker.Config) { c.Concurrency = 1 })
			}
			b.WaitFor("no message", 10*time.Minute, func() bool { return b.MessagesLeft() == 0 })
			if starts, most := h.of("a"); starts != 1 || most != 1 {
				t.Errorf("starts = %d, at once = %d, want 1 and 1", starts, most)
			}
		})
	})
	t.Run("costs one call", func(t *testing.T) {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			const jobs = 32
			for i := range jobs {
				chosen(b, fmt.Sprintf("job-%d", i))
			}
			var records atomic.Int64
			b.Server.OnResult(func(r storage.Result) {
				if r.Service == storage.BlobService && r.Container == b.Names.Records && r.Blob != "" {
					records.Add(1)
				}
			})
			b.Server.ResetCounts()
			b.Start("vm_0", job.Kinds{"h": &counted{each: time.Millisecond}}, func(c *worker.Config) { c.Concurrency = 32 })
			b.WaitFor("no message", time.Minute, func() bool { return b.MessagesLeft() == 0 })
			counts := b.Server.Counts()
			if records.Load() != 2*jobs || counts["DeleteMessage"] != jobs || counts["UpdateMessage"] != 0 {
				t.Errorf("calls for %d jobs: %d for records, %d deletes, %d updates, want 2 and 1 each and none", jobs, records.Load(),
					counts["DeleteMessage"], counts["UpdateMessage"])
			}
		})
	})
}

// waitsByTime derives a worker's random waits from the time at which they begin, which in
// a bubble is the same in every run.
var waitsByTime = retry.Jitter{Random: func(d time.Duration) time.Duration {
	return time.Duration(rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(d))).Int64N(int64(d) + 1))
}}

// TestUnknownKindIsReported: the heartbeats say at once which kinds no worker has and how many
// jobs of them wait, over all workers about the right number, and no longer when a worker has
// the kind. The reason of a dead-lettered job names the kind that was probably meant.
func TestUnknownKindIsReported(t *testing.T) {
	proof.Only(t, "it simulates hours; TestUnknownKind is its quick part")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const jobs = 6
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "logstat", "")
		}
		for i := range 2 {
			b.Start(fmt.Sprintf("vm_%d", i), job.Kinds{"logstats": rig.Echo})
		}
		lacking := func() (n int) {
			listed, err := b.Workers.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range listed {
				for _, k := range p.Findings.Lacks {
					if k.Kind != "logstat" {
						t.Errorf("kind %q is reported, want logstat alone", k.Kind)
					}
					n += k.Jobs
				}
			}
			return n
		}
		time.Sleep(45 * time.Second)
		least, most := jobs, 0
		for range 50 {
			time.Sleep(20 * time.Second)
			n := lacking()
			least, most = min(least, n), max(most, n)
		}
		t.Logf("%d jobs were reported as %d to %d", jobs, least, most)
		if least < jobs/2 || most > 2*jobs {
			t.Errorf("%d jobs were reported as %d to %d", jobs, least, most)
		}
		b.WaitFor("all poisoned", time.Hour, func() bool { return len(b.PoisonMessages()) == jobs })
		if reason := b.PoisonMessages()[0].Reason; reason != `no worker has a handler for kind "logstat" (did you mean "logstats"?), for 1h0m0s` {
			t.Errorf("reason = %q, want the kind that was meant", reason)
		}
		time.Sleep(2 * time.Minute)
		if n := lacking(); n != 0 {
			t.Errorf("%d jobs are reported although all are poison", n)
		}
		b.Put("late", "logstat", "")
		b.WaitFor("it is reported", 2*time.Minute, func() bool { return lacking() == 1 })
		b.Start("vm_2", job.Kinds{"logstat": rig.Echo})
		b.WaitDone("late", 2*time.Minute)
		b.WaitFor("it is reported no longer", 2*time.Minute, func() bool { return lacking() == 0 })
	})
}
