package drain

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

const (
	// LeastParallel is how many jobs are saved and released at once in a drain, at
	// least, and mostParallel at most.
	LeastParallel = 64
	mostParallel  = 160

	// processorTime is how long a processor is busy with one call of a drain, about.
	processorTime = 150 * time.Microsecond
)

// Parallel returns how many jobs are saved and released at once in a drain where
// answers take that long at least: so many that the processors are busy while calls wait
// for their answers, and no more, since calls that wait for processors are cut off as if
// storage did not answer.
func Parallel(latency time.Duration, processors int) int {
	return min(max(int(latency/processorTime)*processors, LeastParallel), mostParallel)
}

const (
	// smallWrite is the largest write, in bytes, whose time is latency rather
	// than bandwidth, and smallWriteHolds how long it keeps its place. Where
	// storage is slow, more writes run at once: as many again in each such time.
	smallWrite      = 64 << 10
	smallWriteHolds = 200 * time.Millisecond
)

// Gate admits a bounded number of writes at once, the smallest first, so that most
// jobs are saved when time or bandwidth is short. A small write that takes long
// passes its place on, since waiting for an answer uses no bandwidth.
type Gate struct {
	places func() int

	mu      sync.Mutex
	taken   int
	waiting ticketHeap
}

// ticket is one waiting write. It is admitted by closing its channel.
type ticket struct {
	size     int
	index    int
	admitted chan struct{}
}

// NewGate returns a gate for as many writes at once as places says, which is called for
// each write.
func NewGate(places func() int) *Gate { return &Gate{places: places} }

// Enter waits for a place. The caller must call leave. The error is the cause of
// ctx if that ends first.
func (g *Gate) Enter(ctx context.Context, size int) (leave func(), err error) {
	g.mu.Lock()
	if g.taken < g.places() {
		g.taken++
		g.mu.Unlock()
		return g.hold(size), nil
	}
	t := &ticket{size: size, admitted: make(chan struct{})}
	heap.Push(&g.waiting, t)
	g.mu.Unlock()

	select {
	case <-t.admitted:
		return g.hold(size), nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.index < 0 { // admitted at the same moment: pass the place on
		g.taken--
		g.admit()
	} else {
		heap.Remove(&g.waiting, t.index)
	}
	return nil, context.Cause(ctx)
}

// hold returns the function that leaves a place. A small write's place is passed on
// after smallWriteHolds at the latest.
func (g *Gate) hold(size int) (leave func()) {
	once := sync.OnceFunc(g.leave)
	if size > smallWrite {
		return once
	}
	timer := time.AfterFunc(smallWriteHolds, once)
	return func() { timer.Stop(); once() }
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken--
	g.admit()
}

// admit gives free places to the smallest waiting writes. The caller holds mu.
func (g *Gate) admit() {
	for len(g.waiting) > 0 && g.taken < g.places() {
		g.taken++
		close(heap.Pop(&g.waiting).(*ticket).admitted)
	}
}

// ticketHeap orders tickets by size, for package heap.
type ticketHeap []*ticket

func (h ticketHeap) Len() int           { return len(h) }
func (h ticketHeap) Less(i, j int) bool { return h[i].size < h[j].size }
func (h ticketHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *ticketHeap) Push(x any) {
	t := x.(*ticket)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *ticketHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	t.index = -1
	*h = old[:len(old)-1]
	return t
}
