package queues

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
)

// Depths at which work is compared: next to nothing, and a backlog of a day.
const shallow, deep = 10, 1_000_000

// backlog is a queue of some depth that counts comparisons of messages.
type backlog struct {
	*queue
	now         time.Time
	comparisons int
}

// newBacklog fills a queue with n messages that live for ttl, 0 for ever, and
// takes a batch, so that some are hidden as in any queue that is worked on.
func newBacklog(n int, ttl time.Duration) *backlog {
	b := &backlog{queue: newQueue(nil), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for i := range n {
		b.put(b.now.Add(time.Duration(i)), "text", 0, ttl)
	}
	b.now = b.now.Add(time.Minute)
	b.get(b.now, shallow/2, time.Hour)
	b.hidden.before = func(x, y *message) bool { b.comparisons++; return soonerVisible(x, y) }
	b.expiries.before = func(x, y *message) bool { b.comparisons++; return soonerExpired(x, y) }
	return b
}

// job is the queue's work for one job: put, get, renew, delete. The depth is the same
// afterwards.
func (b *backlog) job(t testing.TB, ttl time.Duration) {
	b.now = b.now.Add(time.Millisecond)
	b.put(b.now, "text", 0, ttl)
	m := b.get(b.now, 1, 30*time.Second)[0]
	m, err := b.update(b.now, m.id, m.receipt(), nil, 30*time.Second)
	if err != nil {
		t.Fatalf("update: %v", err)
	}
	if err := b.delete(b.now, m.id, m.receipt()); err != nil {
		t.Fatalf("delete: %v", err)
	}
}

// work counts the comparisons and allocations of one job, as an average.
func (b *backlog) work(t testing.TB, ttl time.Duration) (comparisons, allocations float64) {
	const jobs = 100
	b.comparisons = 0
	allocations = testing.AllocsPerRun(jobs-1, func() { b.job(t, ttl) }) // it runs one more time
	return float64(b.comparisons) / jobs, allocations
}

// Work is counted, not timed: a busy machine would blur times, and a large memory has
// slower caches with any program.
func TestAJobCostsTheSameAtAnyDepth(t *testing.T) {
	proof.WithoutRace(t, "a million messages in one goroutine")
	few, fewAllocations := newBacklog(shallow, 0).work(t, 0)
	before := inUse()
	b := newBacklog(deep, 0)
	size := float64(inUse()-before) / deep
	many, manyAllocations := b.work(t, 0)
	t.Logf("at depth %d: %g comparisons, %g allocations; at %d: %g and %g", shallow, few, fewAllocations, deep, many, manyAllocations)
	t.Logf("%.0f bytes a message besides its text", size)
	if few == 0 || many != few {
		t.Errorf("comparisons = %g at depth %d and %g at %d, want the same", few, shallow, many, deep)
	}
	if manyAllocations != fewAllocations {
		t.Errorf("allocations = %g at depth %d and %g at %d, want the same", fewAllocations, shallow, manyAllocations, deep)
	}
	if size > 512 {
		t.Errorf("a message takes %.0f bytes besides its text, want at most 512", size)
	}
}

// inUse is how many bytes of memory are in use.
func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestExpiryCostsTheLogarithmOfTheDepth(t *testing.T) {
	const depth = 100_000
	levels := math.Ceil(math.Log2(depth))
	comparisons, _ := newBacklog(depth, time.Hour).work(t, time.Hour)
	if most := 3 * levels; comparisons > most {
		t.Errorf("a job among %d messages that expire took %g comparisons, want at most %g", depth, comparisons, most)
	}
}

func TestPeekAndCountLookAtNoMoreThanTheyShow(t *testing.T) {
	b := newBacklog(1000, time.Hour)
	for operation, run := range map[string]func(){
		"peek of 32": func() { b.peek(b.now, 32) },
		"count":      func() { b.count(b.now) },
	} {
		b.comparisons = 0
		run()
		if b.comparisons != 0 {
			t.Errorf("%s took %d comparisons, want none", operation, b.comparisons)
		}
	}
}
