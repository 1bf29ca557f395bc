package workercmd

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// garbageBetween is how many bytes are allocated between two garbage collections
	// at least. Go's default collects when the heap has doubled: a worker of short
	// jobs, whose heap is 4 MiB, would do so hundreds of times a minute.
	garbageBetween = 32 << 20

	// defaultGCPercent is Go's default, and maxGCPercent bounds what a small heap gets.
	defaultGCPercent = 100
	maxGCPercent     = 800
)

// collectLess makes garbage collections of small heaps rarer: a heap grows by
// garbageBetween or to twice its live size, whichever is more. So it costs at most
// garbageBetween more memory than Go's default, whatever jobs hold. It does nothing
// where the environment sets GOGC or GOMEMLIMIT.
func collectLess() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	(&collector{percent: defaultGCPercent}).adjust()
}

// collector adjusts the garbage collector after each collection, since the percentage
// depends on the live heap. It is garbage itself, so that its own finalizer reports
// the next collection.
type collector struct{ percent int }

func (c *collector) adjust() {
	if next := gcPercent(liveHeap()); next != c.percent {
		c.percent = next
		debug.SetGCPercent(next)
	}
	runtime.SetFinalizer(c, (*collector).adjust)
}

// gcPercent returns by how many percent a heap of that live size grows until the next
// collection.
func gcPercent(live uint64) int {
	return int(min(max(garbageBetween*100/max(live, 1), defaultGCPercent), maxGCPercent))
}

// liveHeap returns the bytes that were live at the end of the last collection.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
