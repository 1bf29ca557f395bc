package workercmd

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestGCPercent checks how far a heap grows until it is collected.
func TestGCPercent(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name               string
		scanned, allocated uint64
		took               time.Duration
		busy               bool
		want               int // percent
	}{
		{"at the start", 0, 0, 0, false, 400},
		{"a tiny heap", 1 * mib, 100 * mib, time.Second, false, 400},
		{"short jobs: 16 MiB", 4 * mib, 16 * mib, 100 * time.Millisecond, false, 400},
		{"short jobs for a while: 16 MiB too, where that is enough", 4 * mib, 16 * mib, 250 * time.Millisecond, true, 400},
		{"short jobs for a while, in many slots: 48 MiB", 16 * mib, 16 * mib, 100 * time.Millisecond, true, 300},
		{"short jobs for a while, a small heap", 2 * mib, 48 * mib, 100 * time.Millisecond, true, 1200},
		{"many long jobs: 2 MiB", 16 * mib, 2 * mib, 2 * time.Second, false, 12},
		{"many long jobs that save often: 8 MiB", 16 * mib, 8 * mib, time.Second, false, 50},
		{"a large heap that allocates much: a quarter of it", 1024 * mib, 1024 * mib, time.Second, false, 25},
		{"a large heap that allocates little: a collection a minute", 1024 * mib, 60 * mib, time.Minute, false, 6},
		{"a large heap that allocates nothing", 1024 * mib, 0, time.Minute, false, 1},
	} {
		if got := gcPercent(tt.scanned, tt.allocated, tt.took, tt.busy); got != tt.want {
			t.Errorf("%s: gcPercent = %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestCollectorOfBusyWorkers: only a worker that has allocated much for a while collects as
// rarely as a busy one, and not any more when it allocates less.
func TestCollectorOfBusyWorkers(t *testing.T) {
	const mib = 1 << 20
	start := time.Now()
	c := &collector{at: start, calm: start}
	collect := func(at time.Duration, allocated uint64) int {
		now := start.Add(at)
		percent := c.next(memoryUse{scanned: 12 * mib, allocated: c.allocated + allocated}, now)
		c.at, c.allocated = now, c.allocated+allocated
		return percent
	}
	for _, step := range []struct {
		at        time.Duration
		allocated uint64 // since the step before
		busy      bool
	}{
		{time.Second, 100 * mib, false},
		{1900 * time.Millisecond, 100 * mib, false},
		{2100 * time.Millisecond, 30 * mib, true}, // for busyAfter
		{3 * time.Second, 100 * mib, true},
		{4 * time.Second, 20 * mib, false}, // calm again
		{5 * time.Second, 100 * mib, false},
		{6 * time.Second, 100 * mib, true},
	} {
		if percent := collect(step.at, step.allocated); (percent > mostGarbage*100/(12*mib)) != step.busy {
			t.Errorf("after %s the heap grows by %d percent; it should be that of a busy worker: %t", step.at, percent, step.busy)
		}
	}
}

// TestCollectorHurries: in a drain a heap grows by more until it is collected, and after
// it the collector adapts again, also while nothing is collected.
func TestCollectorHurries(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	c := adaptCollector()
	if c == nil {
		t.Fatal("adaptCollector = nil, want a collector: neither variable is set")
	}
	percent := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.percent
	}
	collect := func() {
		last := func() time.Time {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.at
		}
		for before := last(); last().Equal(before); time.Sleep(time.Millisecond) {
			runtime.GC()
		}
	}
	c.hurry(true)
	collect()
	if got, want := percent(), hurriedPercent(heapUse().scanned); got != want || got < defaultGCPercent {
		t.Errorf("GC percentage in a drain = %d, want %d", got, want)
	}
	c.hurry(false)
	collect()
	c.mu.Lock()
	if c.hurried {
		t.Error("the collector still hurries after the drain")
	}
	c.mu.Unlock()
	c.mu.Lock()
	c.percent, c.at = maxGCPercent, c.at.Add(-time.Hour) // as after a busy time an hour ago
	c.mu.Unlock()
	c.reconsider()
	if got := percent(); got >= maxGCPercent {
		t.Errorf("GC percentage an hour after a busy time = %d, want less", got)
	}
	t.Setenv("GOGC", "50")
	if adaptCollector() != nil {
		t.Error("adaptCollector with GOGC set returned a collector, want nil")
	}
	(*collector)(nil).hurry(true) // does nothing
}
