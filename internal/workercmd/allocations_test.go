package workercmd

import (
	"runtime"
	"testing"
)

// mostAllocations bounds the allocations of a short job, as a multiple of the
// allocations of the SDK alone, which makes the same calls. A worker's count rises with the
// time that a busy machine takes for its jobs: records then have more keys in milliseconds
// that are not 0, and timers run more often.
const mostAllocations = 1.25

// TestShortJobAllocations: a worker allocates little more for a short job than the SDK's
// calls do, within mostAllocations. Both counts include the emulator's, which are the same.
func TestShortJobAllocations(t *testing.T) {
	const jobs = 32 * 20
	allocations := func(run func(s *shortJobs, tb testing.TB, onReady func()), check func(s *shortJobs)) float64 {
		s := newShortJobs(t, jobs)
		defer func() { check(s) }()
		var before, after runtime.MemStats
		run(s, t, func() { runtime.ReadMemStats(&before) })
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / jobs
	}
	// The loop of the SDK writes as many keys as a worker does on average: keys in
	// milliseconds are left out where they are 0.
	sameKeys := func(s *shortJobs) {
		keys := 0
		for _, b := range s.server.Blobs(s.names.Records) {
			keys += len(b.Metadata)
		}
		t.Logf("keys of a record: %.1f", float64(keys)/jobs)
		if got, want := float64(keys)/jobs, float64(len(recordOf("", ""))); got < want-1 || got > want+2 {
			t.Errorf("a worker's record of a short job has %.1f keys, that of the SDK's loop %.0f", got, want)
		}
	}
	worker, sdk := allocations((*shortJobs).runWorker, sameKeys), allocations((*shortJobs).runSDK, func(*shortJobs) {})
	t.Logf("allocations of a short job: %.0f, %.0f of the SDK alone", worker, sdk)
	if worker > mostAllocations*sdk {
		t.Errorf("allocations of a short job = %.0f, want at most %.2f times the %.0f of the SDK alone", worker, mostAllocations, sdk)
	}
}
