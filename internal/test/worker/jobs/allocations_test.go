package jobs

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// mostAllocations bounds the allocations of a short job, the emulator's included: 916, which are the
// same in each run, and a twentieth more.
const mostAllocations = 960

// TestAllocationsOfAShortJob: a short job costs a worker few allocations.
func TestAllocationsOfAShortJob(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const jobs = 32 * 20
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "echo", "1")
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b.Start("vm_0", job.Kinds{"echo": rig.Echo}, func(c *worker.Config) { c.Concurrency = 32 })
		for b.MessagesLeft() > 0 {
			time.Sleep(time.Second)
		}
		runtime.ReadMemStats(&after)
		if r := b.Record("job-7"); r.Status != checkpoint.Done {
			t.Fatalf("a job is %s", r.Status)
		}
		n := (after.Mallocs - before.Mallocs) / jobs
		t.Logf("allocations of a short job: %d", n)
		if n > mostAllocations {
			t.Errorf("allocations of a short job = %d, want at most %d", n, mostAllocations)
		}
	})
}
