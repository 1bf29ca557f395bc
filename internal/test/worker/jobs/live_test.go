package jobs

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// reporting is a handler that saves nothing: each second it prints a line and reports a
// hundredth of its work.
var reporting = job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
	for n := 1; n <= 100; n++ {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		job.Print(ctx, joblog.Stdout, fmt.Appendf(nil, "line %d", n))
		j.Report(job.Progress{Fraction: float64(n) / 100, Text: fmt.Sprintf("step %d", n)})
	}
	return nil, nil
})

// lag is how old the progress of a running job is at most: a heartbeat and a second.
const lag = presence.Every + time.Second

// TestProgressWithoutASave: the progress and the last lines of a job that saves nothing are
// known within a heartbeat. After an eviction the job starts over, and so does its progress.
func TestProgressWithoutASave(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		desk, err := client.Open(client.Options{
			ConnectionString: b.Server.ConnectionString(), Transport: b.Server.Transport(), Prefix: "test", Name: "test@desk",
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Put("a", "reports", "")
		first := b.Start("vm_0", job.Kinds{"reports": reporting})
		b.WaitFor("a record", time.Minute, func() bool { return b.Record("a").Generation == 1 })
		for _, at := range []int{30, 60, 80} {
			for {
				if r := b.Record("a"); time.Since(r.CreatedAt) >= time.Duration(at)*time.Second {
					break
				}
				time.Sleep(time.Second)
			}
			checkLive(t, desk, 1, at)
		}
		first.Stop()
		if r := b.Record("a"); r.Status != checkpoint.Open || r.Fraction < 0.8 {
			t.Fatalf("released as %s at %g, want an open job with its last report", r.Status, r.Fraction)
		}
		b.Start("vm_1", job.Kinds{"reports": reporting})
		b.WaitFor("a second claim", time.Minute, func() bool { return b.Record("a").Generation == 2 })
		if r := b.Record("a"); r.Fraction > 0.1 || r.Fraction == 0 && r.Text != checkpoint.StartsOver {
			t.Errorf("claimed again at %g %q, want the beginning", r.Fraction, r.Text)
		}
		time.Sleep(40 * time.Second)
		checkLive(t, desk, 2, 40)
		if j, err := desk.Get(t.Context(), "a"); err != nil || j.Fraction > 0.5 {
			t.Errorf("record of the second run: %g, %v", j.Fraction, err)
		}
		b.WaitDone("a", 2*time.Minute)
		synctest.Wait()
		log, err := desk.Live(t.Context(), "a")
		if err != nil || log.Job.Live != nil {
			t.Errorf("Live of a job that is done = %+v, %v, want none", log.Job.Live, err)
		}
	})
}

// checkLive checks what is known of a job whose delivery has run for so many seconds.
func checkLive(t *testing.T, desk *client.Client, delivery, ran int) {
	t.Helper()
	log, err := desk.Live(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	live := log.Job.Live
	if live == nil {
		t.Fatalf("after %d s no heartbeat has the job", ran)
	}
	least := float64(ran)/100 - lag.Seconds()/100
	if live.Age > presence.Every || live.Fraction < least || live.Fraction > float64(ran+2)/100 {
		t.Errorf("after %d s: %g, %s ago, want at least %g", ran, live.Fraction, live.Age, least)
	}
	if live.Text != fmt.Sprintf("step %.0f", live.Fraction*100) {
		t.Errorf("text = %q at %g", live.Text, live.Fraction)
	}
	rest := time.Duration(100-ran) * time.Second
	if left, ok := log.Job.TimeLeft(); !ok || (left-rest).Abs() > 3*time.Second {
		t.Errorf("after %d s: %s left, %t, want %s", ran, left, ok, rest)
	}
	last := log.Lines[len(log.Lines)-1]
	if want := fmt.Sprintf("line %.0f", live.Fraction*100); last.Delivery != delivery || last.Text != want {
		t.Errorf("last line = %d %q, want %q of delivery %d", last.Delivery, last.Text, want, delivery)
	}
}
