package fleets

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/race"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// TestManyJobs runs 1,000 jobs at once that were claimed together: their renewals come
// evenly, their calls do not need a connection each, and their stacks are small.
func TestManyJobs(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		jobs := proof.Times(200, 1000)
		const (
			latency = 10 * time.Millisecond
			minute  = time.Minute
		)
		var mu sync.Mutex
		var began time.Time // when all jobs were running
		now, most := 0, 0   // calls at once
		var renewals [int(minute / time.Second)]int
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			mu.Lock()
			now++
			most = max(most, now)
			if since := time.Since(began); c.Operation == storage.OpUpdateMessage && !began.IsZero() && since < minute {
				renewals[since/time.Second]++
			}
			mu.Unlock()
			time.Sleep(latency)
			mu.Lock()
			now--
			mu.Unlock()
			return storage.Fault{}
		})
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "crowd", "")
		}
		work := &rig.SteadyReporter{}
		b.Start("vm_0", job.Kinds{"crowd": work}, func(c *worker.Config) {
			c.Concurrency, c.Log = jobs, slog.New(slog.DiscardHandler)
		})
		b.WaitFor("all jobs running", minute, func() bool { return work.Running.Load() == int64(jobs) })
		mu.Lock()
		began, most = time.Now(), 0
		mu.Unlock()
		time.Sleep(minute)
		// The goroutines of a job that waits need so little that the runtime gives them
		// 4 KiB each.
		if got := usedStacks() / uint64(jobs); got > 2500 && proof.Full() && !race.Enabled {
			t.Errorf("stacks of a job that waits use %d bytes, want at most 2500", got)
		} else {
			t.Logf("stacks of a job that waits use %d bytes", got)
		}

		mu.Lock()
		defer mu.Unlock()
		sum, busiest := 0, 0
		for _, n := range renewals {
			sum, busiest = sum+n, max(busiest, n)
		}
		mean := float64(sum) / float64(len(renewals))
		t.Logf("at most %d calls at once; renewals in a second: %.0f in the mean, %d at most", most, mean, busiest)
		if most > 64 {
			t.Errorf("calls at once = %d, want at most 64", most)
		}
		if want := float64(jobs) / 10; mean < 0.9*want || proof.Full() && float64(busiest) > 2*mean { // few jobs are not even
			t.Errorf("renewals in a second = %.0f in the mean, %d at most, want %.0f and at most twice the mean", mean, busiest, want)
		}
	})
}

// usedStacks returns how many bytes of all goroutines' stacks are in use.
func usedStacks() uint64 {
	runtime.GC() // which measures them
	read := []metrics.Sample{{Name: "/gc/scan/stack:bytes"}}
	metrics.Read(read)
	return read[0].Value.Uint64()
}
