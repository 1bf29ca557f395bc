package fleets

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/worker/intake"
	"github.com/spotworker/spotworker/job"
)

// latency makes each storage call take that long.
func latency(b *rig.Bed, each time.Duration) {
	b.Server.OnCall(func(storage.Call) storage.Fault {
		return storage.Fault{Before: each / 2, After: each - each/2}
	})
}

// TestCeilingBySlots: the rate of short jobs grows with the slots. A job's two calls
// follow one another, so that no worker can do more than slots/(2 × latency) jobs a
// second. Claims must not make it much less, and must be full. The worker begins slowly: the
// rate is of the last jobs.
func TestCeilingBySlots(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	for _, tt := range []struct {
		slots   int
		latency time.Duration
		batches int
		last    int     // of the batches: the rate is theirs
		least   float64 // jobs a second
	}{
		{64, 0, 20, 20, 0}, // calls take no time
		{64, 10 * time.Millisecond, 240, 50, 3061},
		{256, 0, 40, 40, 0},
		{256, 10 * time.Millisecond, 620, 150, 10_714},
	} {
		jobs := tt.batches * queue.MaxClaim
		t.Run(fmt.Sprintf("%d slots, %s", tt.slots, tt.latency), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				for i := range jobs {
					b.Put(fmt.Sprintf("job-%d", i), "echo", "1")
				}
				latency(b, tt.latency)
				var mu sync.Mutex // guards what follows until done
				var began, first, last time.Time
				deleted, done := 0, make(chan struct{})
				b.Server.ResetCounts()
				b.Server.OnResult(func(r storage.Result) {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case r.Operation == storage.OpGetMessages && began.IsZero():
						began, first = time.Now(), time.Now()
					case r.Operation == storage.OpDeleteMessage:
						switch deleted++; deleted {
						case (tt.batches - tt.last) * queue.MaxClaim:
							first = time.Now()
						case jobs:
							last = time.Now()
							close(done)
						}
					}
				})
				b.Start("vm_0", job.Kinds{"echo": rig.Echo}, rig.DiscardLog, func(c *worker.Config) { c.Concurrency = tt.slots })
				<-done
				rate, claims := float64(tt.last*queue.MaxClaim)/last.Sub(first).Seconds(), b.Server.Counts()[storage.OpGetMessages]
				t.Logf("%d jobs in %s, the last at %.0f/s, with %d claims", jobs, last.Sub(began), rate, claims)
				if rate < tt.least {
					t.Errorf("jobs a second = %.0f, want at least %.0f", rate, tt.least)
				}
				// Until the first job ends, slots are filled as they are; at the end the
				// claims in flight find nothing.
				if most := int64(tt.batches + tt.slots/queue.MaxClaim + intake.MaxClaims); claims > most {
					t.Errorf("claims of %d jobs = %d, want at most %d", jobs, claims, most)
				}
			})
		})
	}
}
