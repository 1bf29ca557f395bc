package delivery_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// TestCircles: a job that takes break after break, or fails again and again although it makes progress, is reported the
// tenth and the twentieth time, once each, also if its message cannot be released at first, and not when its worker stops.
func TestCircles(t *testing.T) {
	const breaks, failures = "job circles: it keeps taking breaks and its fraction does not grow",
		"job circles: it keeps failing although it makes progress"
	for name, row := range map[string]struct {
		err          error
		line, silent string
		cause        string
	}{
		"breaks":   {job.Interrupted(errors.New("wait")), breaks, failures, "circles breaks"},
		"failures": {errors.New("out of luck"), failures, breaks, "circles failures"},
	} {
		t.Run(name, func(t *testing.T) {
			n, last := 0, false
			run := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
				if last {
					return nil, sleeps(ctx, time.Hour)
				}
				n++
				p := job.Progress{State: []byte{byte(n)}}
				if name == "failures" {
					p.Fraction = float64(n) / 100
				}
				j.Report(p)
				return nil, row.err
			})
			kinds := job.Kinds{"k": job.WithLimits(run, job.Limits{Backoff: time.Second})}
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				for i := 1; i <= 20; i++ {
					wait := b.begin(b.claim())
					if i%10 == 0 {
						end := b.fail(http.StatusForbidden, "AuthorizationFailure", func(c storage.Call) bool {
							return c.Operation == storage.OpUpdateMessage
						})
						time.Sleep(time.Second)
						end()
					}
					wait()
					time.Sleep(5 * time.Second) // the back-off after twenty breaks
					want := i / 10
					if got := b.lines(row.line); got != want || b.lines(row.silent) != 0 || b.counter.Of(row.cause)[row.cause] != want {
						t.Fatalf("after %d: %d lines, the observer got %v; want %d", i, got, b.counter.Of(row.cause), want)
					}
				}
				last = true
				wait := b.begin(b.claim())
				time.Sleep(time.Minute)
				b.drainNow(10 * time.Second)
				wait()
				if got := b.lines(row.line); got != 2 || b.Record("a").Interruptions == 0 {
					t.Errorf("%d lines after a stop, want 2 as before", got)
				}
			})
		})
	}
}
