package delivery_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// TestGoroutinesOfWaitingJobs: a job that waits has two goroutines.
func TestGoroutinesOfWaitingJobs(t *testing.T) {
	const n = 300
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		j.Report(job.Progress{State: []byte("s")})
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		before := goroutines()
		wait := b.beginMany(n)
		time.Sleep(time.Minute + 2*time.Second)
		if got := goroutines() - before; got < 2*n || got > 2*n+n/2 { // some wait for calls of storage
			t.Errorf("%d goroutines of %d jobs, want two of each", got, n)
		}
		b.drainNow(10 * time.Second)
		wait()
	})
}

// goroutines counts those of bubbles: the runtime's own come and go.
func goroutines() int {
	all := make([]byte, 16<<20)
	return bytes.Count(all[:runtime.Stack(all, true)], []byte("synctest bubble "))
}

// TestUsualRunTime: once the worker has done enough jobs of a kind, a job that reports nothing is silent after ten times the longest of
// their run times, and not after an hour.
func TestUsualRunTime(t *testing.T) {
	takes := 40 * time.Second
	kinds := handle(func(ctx context.Context, _ *job.Job) ([]byte, error) { return nil, sleeps(ctx, takes) })
	onBench(t, kinds, func(t *testing.T, b *bench) {
		for i := range 20 {
			b.Put(fmt.Sprint("job-", i), "k", "")
			b.runOne()
		}
		takes = time.Hour
		b.Put("silent", "k", "")
		wait := b.begin(b.claim())
		for want, after := range []time.Duration{399 * time.Second, 2 * time.Second} {
			time.Sleep(after)
			if s := b.Sight(); s.Silent != want {
				t.Errorf("%d jobs are silent %s after the last check, want %d", s.Silent, after, want)
			}
		}
		b.drainNow(10 * time.Second)
		wait()
	})
}

// TestSightOfARunningJob: heartbeat and metrics show how far a running job is: its times, its last report, and the lines that its
// record does not have yet.
func TestSightOfARunningJob(t *testing.T) {
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) { // the worker looks every 5 s
		if err := sleeps(ctx, 28*time.Second); err != nil {
			return nil, err
		}
		job.Print(ctx, joblog.Stdout, []byte("a line"))
		j.Report(job.Progress{State: []byte("new"), Fraction: 0.5, Text: "half"})
		return nil, sleeps(ctx, time.Hour)
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		e := queue.Envelope{ID: "a", Kind: "k", Resume: true}
		c := b.Records.Fresh(former(e), "vm_9-boot-1")
		c.SetFacts(func(f checkpoint.Facts) checkpoint.Facts {
			f.RunTime = time.Minute
			return f
		})
		if err := c.Release(t.Context(), checkpoint.Snapshot{State: []byte("s"), Fraction: 0.25}); err != nil {
			t.Fatal(err)
		}
		b.put(e)
		wait := b.begin(b.claim())
		shown := func(ran time.Duration, change func(r *presence.Running)) {
			t.Helper()
			want := presence.Running{ID: "a", Generation: 2, RunTime: time.Minute + ran, Ran: ran, From: 0.25, Fraction: 0.25}
			change(&want)
			got := b.Running()
			if len(got) == 1 && len(want.Log) > 0 && len(got[0].Log) > 0 {
				want.Log = got[0].Log // its form is another package's
			}
			if diff := cmp.Diff([]presence.Running{want}, got); diff != "" {
				t.Errorf("running after %s (-want +got)\n%s", ran, diff)
			}
		}
		sight := func(report, saved time.Duration, silent string) {
			t.Helper()
			n := 0
			if silent != "" {
				n = 1
			}
			s := b.Sight()
			if s.Report != report || s.Checkpoint != saved || s.Silent != n || s.SilentJob != silent {
				t.Errorf("sight = %+v, want a report %s and a checkpoint %s ago, silent: %q", s, report, saved, silent)
			}
		}
		time.Sleep(20 * time.Second)
		shown(20*time.Second, func(*presence.Running) {})
		sight(20*time.Second, 20*time.Second, "")
		time.Sleep(9 * time.Second)
		reported := func(r *presence.Running) { r.Fraction, r.Text = 0.5, "half" }
		shown(29*time.Second, func(r *presence.Running) { reported(r); r.Log = []byte("some") })
		time.Sleep(31 * time.Second)
		shown(time.Minute, reported)
		sight(30*time.Second, 30*time.Second, "")
		time.Sleep(10 * time.Minute)
		sight(10*time.Minute+30*time.Second, 10*time.Minute+30*time.Second, "a")
		b.drainNow(10 * time.Second)
		wait()
		if s := b.Sight(); s.Report != 0 || s.Checkpoint != 0 || s.Silent != 0 || len(b.Running()) != 0 {
			t.Errorf("sight after the drain = %+v, want nothing", s)
		}
	})
}
