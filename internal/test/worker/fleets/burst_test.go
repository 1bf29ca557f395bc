package fleets

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// TestBurst: a worker alone does 1,000 jobs as fast as its slots allow, also with a queue that
// has Azure's limit: after it was idle, and with a backlog at its start as soon as it has counted
// the workers.
func TestBurst(t *testing.T) {
	const jobs, slots, each = 1000, 64, 5 * time.Millisecond
	const ideal = jobs*2*each/slots + each // one claim, then the two calls of each job
	for name, tt := range map[string]struct {
		idle time.Duration // before the burst
		want time.Duration
	}{
		"idle for a minute": {time.Minute, ideal * 115 / 100},
		"at the start":      {0, ideal + 600*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				start := func() {
					b.Start("vm_0", job.Kinds{"echo": rig.Echo}, rig.DiscardLog, func(c *worker.Config) { c.Concurrency, c.Metadata = slots, nil })
				}
				if tt.idle > 0 {
					start()
					time.Sleep(tt.idle)
				}
				for i := range jobs {
					b.Put(fmt.Sprintf("job-%d", i), "echo", "1")
				}
				b.Server.SetLimits(&storage.Limits{})
				latency(b, each)
				var mu sync.Mutex // guards what follows
				var begun time.Time
				deleted, took := 0, make(chan time.Duration, 1)
				b.Server.OnResult(func(r storage.Result) {
					mu.Lock()
					defer mu.Unlock()
					if r.Operation == storage.OpGetMessages && len(r.MessageIDs) > 0 && begun.IsZero() {
						begun = time.Now().Add(-each)
					}
					if r.Operation != storage.OpDeleteMessage {
						return
					}
					if deleted++; deleted == jobs {
						took <- time.Since(begun)
					}
				})
				if tt.idle == 0 {
					start()
				}
				got := <-took
				t.Logf("%d jobs in %s, %d calls refused; %s is possible", jobs, got, b.Server.Throttled(), ideal)
				if got > tt.want {
					t.Errorf("%d jobs took %s, want at most %s", jobs, got, tt.want)
				}
			})
		})
	}
}
