package worker

import (
	"container/heap"
	"context"
	"sync"
)

// drainParallel is how many jobs are saved and released at once in a drain.
const drainParallel = 64

// gate lets a bounded number of last writes run at once, the smallest first:
// when time or bandwidth is short, most jobs are then saved.
type gate struct {
	mu      sync.Mutex
	free    int
	waiting ticketHeap
}

// ticket is one waiting write. It is admitted by closing its channel.
type ticket struct {
	size     int
	index    int
	admitted chan struct{}
}

func newGate(parallel int) *gate { return &gate{free: parallel} }

// enter waits for a place and returns what leaves it again. It returns an error
// when ctx ends first.
func (g *gate) enter(ctx context.Context, size int) (leave func(), err error) {
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return g.leave, nil
	}
	t := &ticket{size: size, admitted: make(chan struct{})}
	heap.Push(&g.waiting, t)
	g.mu.Unlock()

	select {
	case <-t.admitted:
		return g.leave, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.index < 0 { // admitted at the same moment: pass the place on
		g.pass()
	} else {
		heap.Remove(&g.waiting, t.index)
	}
	return nil, context.Cause(ctx)
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pass()
}

// pass gives a place to the smallest waiting write. The caller holds mu.
func (g *gate) pass() {
	if len(g.waiting) == 0 {
		g.free++
		return
	}
	close(heap.Pop(&g.waiting).(*ticket).admitted)
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
