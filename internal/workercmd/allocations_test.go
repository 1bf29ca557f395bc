package workercmd

import (
	"runtime"
	"testing"
)

// mostAllocations bounds the allocations of a short job by those of the SDK alone, which
// makes the same calls.
const mostAllocations = 1.1

// TestShortJobAllocations: a worker allocates hardly more for a short job than the SDK's
// calls do. Both counts include the emulator's, which are the same.
func TestShortJobAllocations(t *testing.T) {
	const jobs = 32 * 20
	allocations := func(run func(s *shortJobs, tb testing.TB, onReady func())) float64 {
		s := newShortJobs(t, jobs)
		var before, after runtime.MemStats
		run(s, t, func() { runtime.ReadMemStats(&before) })
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / jobs
	}
	worker, sdk := allocations((*shortJobs).runWorker), allocations((*shortJobs).runSDK)
	t.Logf("allocations of a short job: %.0f, %.0f of the SDK alone", worker, sdk)
	if worker > mostAllocations*sdk {
		t.Errorf("allocations of a short job = %.0f, want at most %.1f times the %.0f of the SDK alone", worker, mostAllocations, sdk)
	}
}
