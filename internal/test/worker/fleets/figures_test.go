package fleets

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// full is whether the tests in this file measure as often as the figures in
// docs/proof.md state. `make figures` sets it; that takes a minute or two.
var full = flag.Bool("figures", false, "measure 1,000 evictions and 100 drains rather than 100 and 1")

// repeats returns the number of measurements.
func repeats(quick, thorough int) int {
	if *full {
		return thorough
	}
	return quick
}

// percentiles summarises many measurements of a time.
type percentiles struct{ p50, p99, longest time.Duration }

func percentilesOf(all []time.Duration) percentiles {
	sorted := slices.Sorted(slices.Values(all))
	at := func(share float64) time.Duration { return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)] }
	return percentiles{at(0.50), at(0.99), sorted[len(sorted)-1]}
}

func (s percentiles) String() string {
	return fmt.Sprintf("p50 %s, p99 %s, max %s", s.p50.Round(time.Millisecond), s.p99.Round(time.Millisecond),
		s.longest.Round(time.Millisecond))
}

// startStopTimes is a handler that waits until it is stopped, and sends the times at
// which it started and its context ended.
type startStopTimes struct{ began, ended chan time.Time }

func newStartStopTimes() *startStopTimes {
	return &startStopTimes{began: make(chan time.Time, 1), ended: make(chan time.Time, 1)}
}

func (w *startStopTimes) Run(ctx context.Context, _ *job.Job) ([]byte, error) {
	w.began <- time.Now()
	<-ctx.Done()
	w.ended <- time.Now()
	return nil, context.Cause(ctx)
}

// TestNoticeToCancelledContext measures promise 5: the time from the announcement of an
// eviction to the end of the handler's context. Each eviction is announced at a random
// time and withdrawn when the worker has drained.
func TestNoticeToCancelledContext(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault imds.Fault // of one poll in ten
		p99   time.Duration
	}{
		{"one poll a second", imds.Fault{}, 1050 * time.Millisecond},
		{"one poll in ten is answered 5 s late", imds.Fault{Delay: 5 * time.Second}, 2050 * time.Millisecond},
		{"one poll in ten gets an answer that is 5 s old", imds.Fault{Hold: 5 * time.Second}, 2050 * time.Millisecond},
		{"one poll in ten times out", imds.Fault{Hang: true}, 2050 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			evictions := repeats(100, 1000)
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.Metadata.OnRequest(func(r imds.Request) imds.Fault {
					if r.N%10 == 0 {
						return tt.fault
					}
					return imds.Fault{}
				})
				work := newStartStopTimes()
				b.Put("job", "watched", "")
				p := b.Start("vm_0", job.Kinds{"watched": work}, func(c *worker.Config) { c.Log = slog.New(slog.DiscardHandler) })
				random := rand.New(rand.NewPCG(1, 1))
				var took []time.Duration
				for range evictions {
					<-work.began
					time.Sleep(time.Duration(random.Int64N(int64(12 * time.Second))))
					announced := time.Now()
					id, err := b.Metadata.SimulateEviction("vm_0")
					if err != nil {
						t.Fatal(err)
					}
					took = append(took, (<-work.ended).Sub(announced))
					time.Sleep(time.Second)
					b.Metadata.Withdraw(id)
				}
				got := percentilesOf(took)
				t.Logf("%d evictions, visible at the endpoint to context cancelled: %s", evictions, got)
				if got.p99 > tt.p99 {
					t.Errorf("p99 = %s, want at most %s", got.p99, tt.p99)
				}
				if got.longest < tt.p99/2 {
					t.Errorf("max = %s, want more: the announcements do not cover all phases of a poll", got.longest)
				}
				if s := p.Guest.Stats(); s.BusiestSecond > 5 || s.Throttled > 0 {
					t.Errorf("%d requests in one second, %d refused, want at most the 5 that the service answers", s.BusiestSecond, s.Throttled)
				}
			})
		})
	}
}

// drainLog is a log handler that sends the attributes of each line about a finished
// drain.
type drainLog struct {
	slog.Handler
	drained chan map[string]any
}

func newDrainLog() drainLog { return drainLog{slog.DiscardHandler, make(chan map[string]any, 1)} }

func (drainLog) Enabled(context.Context, slog.Level) bool { return true }

func (l drainLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "drained" {
		return nil
	}
	line := map[string]any{}
	r.Attrs(func(a slog.Attr) bool { line[a.Key] = a.Value.Any(); return true })
	l.drained <- line
	return nil
}

// TestNoticeToAllReleased measures promise 5 for a worker with 1,000 running jobs: the
// time from the moment the worker sees the notice until the last job is saved and
// released.
func TestNoticeToAllReleased(t *testing.T) {
	for _, tt := range []struct {
		name    string
		latency time.Duration // of each storage call
		want    time.Duration // with the fewest jobs saved at once, as with one processor
	}{
		{"10 ms for a call", 10 * time.Millisecond, 350 * time.Millisecond},
		{"30 ms for a call", 30 * time.Millisecond, 500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			if runtime.GOMAXPROCS(0) > 1 && tt.latency == 10*time.Millisecond {
				want = 200 * time.Millisecond
			}
			drainThousand(t, tt.latency, want)
		})
	}
}

// drainThousand measures drains of 1,000 jobs, or of fewer in a quick run.
func drainThousand(t *testing.T, latency, want time.Duration) {
	t.Helper()
	jobs := proof.Times(200, 1000)
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Server.OnCall(func(storage.Call) storage.Fault {
			return storage.Fault{Before: latency / 2, After: latency / 2}
		})
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "crowd", "")
		}
		work, log := &rig.SteadyReporter{}, newDrainLog()
		b.Start("vm_0", job.Kinds{"crowd": work}, func(c *worker.Config) {
			c.Concurrency, c.Log = jobs, slog.New(log)
		})
		var took []time.Duration
		for len(took) < repeats(1, 100) {
			b.WaitFor("all jobs running", time.Hour, func() bool { return work.Running.Load() == int64(jobs) })
			time.Sleep(2500 * time.Millisecond) // new states were reported
			id, err := b.Metadata.SimulateEviction("vm_0")
			if err != nil {
				t.Fatal(err)
			}
			line := <-log.drained
			took = append(took, line["since_notice"].(time.Duration))
			if line["released"] != int64(jobs) || line["states_left_out"] != int64(0) {
				t.Errorf("drained = %v, want %d released with their states", line, jobs)
			}
			b.Metadata.Withdraw(id)
		}
		got := percentilesOf(took)
		t.Logf("%d drains of %d jobs, notice to all released: %s", len(took), jobs, got)
		if got.p99 > want {
			t.Errorf("p99 = %s, want at most %s", got.p99, want)
		}
	})
}
