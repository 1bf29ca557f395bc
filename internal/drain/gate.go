package drain

import (
	"context"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/drain/ordered"
)

// Parallel is how many jobs are saved and released at once in a drain: enough to keep the
// processors busy while calls wait for their answers.
const Parallel = 160

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
	places int

	mu      sync.Mutex
	taken   int
	waiting ordered.Heap[*ticket] // the smallest first
}

// ticket is one waiting write. It is admitted by closing its channel.
type ticket struct {
	ordered.Item
	size     int
	admitted chan struct{}
}

// NewGate returns a gate for so many writes at once.
func NewGate(places int) *Gate {
	return &Gate{places: places, waiting: ordered.NewHeap(func(a, b *ticket) bool { return a.size < b.size })}
}

// Enter waits for a place. The caller must call leave. The error is the cause of
// ctx if that ends first.
func (g *Gate) Enter(ctx context.Context, size int) (leave func(), err error) {
	if leave, ok := g.TryEnter(size); ok {
		return leave, nil
	}
	t := &ticket{size: size, admitted: make(chan struct{})}
	g.mu.Lock()
	g.waiting.Add(t)
	g.admit() // a place may have become free in between
	g.mu.Unlock()

	select {
	case <-t.admitted:
		return g.hold(size), nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !t.InHeap() { // admitted at the same moment: pass the place on
		g.taken--
		g.admit()
	} else {
		g.waiting.Remove(t)
	}
	return nil, context.Cause(ctx)
}

// TryEnter takes a place if one is free. Then the caller must call leave.
func (g *Gate) TryEnter(size int) (leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.taken >= g.places {
		return nil, false
	}
	g.taken++
	return g.hold(size), true
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
	for g.waiting.Len() > 0 && g.taken < g.places {
		g.taken++
		close(g.waiting.TakeFirst().admitted)
	}
}
