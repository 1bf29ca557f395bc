package workercmd

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// leastGarbage and mostGarbage bound how many bytes are allocated between two
	// garbage collections, where largeShare of the heap is not larger than mostGarbage. Go's
	// default collects when the heap has doubled: a worker of short jobs, whose heap is
	// 4 MiB, would do so twenty times a second, and one of 10,000 long jobs would keep as
	// much garbage as they need.
	leastGarbage = 2 << 20
	mostGarbage  = 16 << 20

	// largeShare is the share of a large heap that is allocated between two collections.
	// A worker with thousands of jobs has a large heap, and most of that heap is live.
	largeShare = 0.25

	// busyGarbage takes the place of mostGarbage once busyRate bytes a second have been
	// allocated for busyAfter: each collection scans a deep stack of every job with a call
	// in flight. The start of 10,000 long jobs is over before that.
	busyGarbage = 48 << 20
	busyRate    = 64 << 20
	busyAfter   = 2 * time.Second

	// hurriedGarbage is how many bytes are allocated between two collections while time
	// is short: as many as a drain of 1,000 jobs allocates.
	hurriedGarbage = 64 << 20

	// scannedPerSecond is how many bytes collections scan each second, as long as
	// garbage is within its bounds. They take about 1 ms/MiB, so that is 1.6 % of one
	// processor.
	scannedPerSecond = 16 << 20

	// maxGCPercent bounds the percentage of a small heap: the heap grows to 4 MiB times
	// the percentage in any case. busyGCPercent does where busyGarbage may be allocated.
	maxGCPercent  = 400
	busyGCPercent = 1200

	defaultGCPercent = 100 // Go's

	// reconsiderEvery is how long after a collection the collector looks again whether
	// less is allocated now: the garbage of busy times, and the deep stacks that they
	// left, would otherwise stay for minutes.
	reconsiderEvery = 3 * time.Second
)

// collector adapts Go's garbage collector to the rate of allocation: a worker of short
// jobs collects rarely, and one of long jobs, which allocates little, keeps its heap
// small. At most mostGarbage or busyGarbage, or largeShare of the heap, is allocated
// between two collections. With Go's default 1,000 waiting jobs take 52 MiB instead of 44, and
// 10,000 take 290 instead of 223 (make bench BENCHFLAGS="--only many"). A nil collector does
// nothing.
type collector struct {
	mu        sync.Mutex
	timer     *time.Timer // for reconsider
	at        time.Time   // of the last collection
	allocated uint64      // up to then
	calm      time.Time   // when less than busyRate was allocated last
	percent   int
	hurried   bool
}

// adaptCollector returns a collector that adapts until the process ends. It returns nil
// where the environment sets GOGC or GOMEMLIMIT.
func adaptCollector() *collector {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	now := time.Now()
	c := &collector{at: now, calm: now}
	c.timer = time.AfterFunc(reconsiderEvery, c.reconsider)
	c.set(maxGCPercent) // until more is known
	c.watch()
	return c
}

// watch calls collected after each collection. The watcher is garbage, whose cleanup runs
// when it is collected.
func (c *collector) watch() {
	type watcher struct{ _ *byte } // with a pointer, it is an allocation of its own
	runtime.AddCleanup(&watcher{}, func(c *collector) { c.collected(); c.watch() }, c)
}

// collected sets when to collect next.
func (c *collector) collected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, use := time.Now(), heapUse()
	next := c.next(use, now)
	if c.hurried {
		next = hurriedPercent(use.scanned)
	}
	c.set(next)
	c.at, c.allocated = now, use.allocated
	c.timer.Reset(reconsiderEvery)
}

// reconsider collects earlier than was decided at the last collection, if less has been
// allocated since then.
func (c *collector) reconsider() {
	c.mu.Lock()
	defer c.mu.Unlock()
	use := heapUse()
	if next := c.next(use, time.Now()); next < c.percent && !c.hurried {
		c.set(next)
	}
	c.timer.Reset(reconsiderEvery)
}

// next returns by how many percent the heap grows until the next collection. The caller
// holds mu.
func (c *collector) next(use memoryUse, now time.Time) int {
	allocated, took := use.allocated-c.allocated, now.Sub(c.at)
	if float64(allocated) < busyRate*took.Seconds() {
		c.calm = now
	}
	return gcPercent(use.scanned, allocated, took, now.Sub(c.calm) >= busyAfter)
}

// hurry says that time is short, as in a drain, or is not any more. Collections would
// then take processor time from the last writes of the jobs.
func (c *collector) hurry(now bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hurried = now; now {
		c.set(hurriedPercent(heapUse().scanned))
	}
}

func (c *collector) set(percent int) {
	if percent != c.percent {
		c.percent = percent
		debug.SetGCPercent(percent)
	}
}

// hurriedPercent is gcPercent while time is short.
func hurriedPercent(scanned uint64) int {
	return int(min(max(hurriedGarbage*100/max(scanned, 1), defaultGCPercent), maxGCPercent))
}

// gcPercent returns by how many percent of the memory that a collection scans the heap
// grows until the next one, where so many bytes were allocated in the time since the
// last one. busy says that much has been allocated for a while.
func gcPercent(scanned, allocated uint64, took time.Duration, busy bool) int {
	most, percent := float64(mostGarbage), maxGCPercent
	if busy {
		most, percent = busyGarbage, busyGCPercent
	}
	scanned = max(scanned, 1)
	every := float64(scanned) / scannedPerSecond
	garbage := every * float64(allocated) / max(took, time.Millisecond).Seconds()
	garbage = min(max(garbage, leastGarbage), max(most, largeShare*float64(scanned)))
	return min(int(max(garbage*100/float64(scanned), 1)), percent)
}

// memoryUse holds the figures of the last collection, in bytes.
type memoryUse struct{ scanned, allocated uint64 }

// heapUse returns the bytes that the collector scanned last (the live heap, stacks and
// global variables), and the bytes allocated since the start. Before the first
// collection all allocated bytes count as live.
func heapUse() memoryUse {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}, {Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	live := value(0)
	if live == 0 {
		live = value(3)
	}
	return memoryUse{scanned: live + value(1) + value(2), allocated: value(3)}
}
