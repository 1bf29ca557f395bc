package blocks

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/storage/readahead"
)

// Sizes of one upload's resources.
const (
	// slabUnits is the length of a slab, in units of the hash: 4 MiB, which holds a
	// group of chunks.
	slabUnits = 4

	// maxSlabs is how many slabs one upload uses at most, ownSlabs how many it may have
	// without a place in the budget.
	maxSlabs, ownSlabs = 10, 2

	// ownCalls is how many calls may be in flight for a slab that needs no place, and
	// grownCalls for a slab that has one: 128 for an upload that has all.
	ownCalls, grownCalls = 4, 15

	// Connections is how many connections to keep for large states: as many as an upload
	// has blocks in flight whose chunks are new. With 16, a third of the calls would open
	// one.
	Connections = 64

	// quickCall is how long a call takes where more calls at once are no harm. On a slow
	// network they would share the time that one of them needs to end before its timeout.
	quickCall = 5 * time.Second
)

// slab is a part of the state in memory. It is free once all its uses have ended.
type slab struct {
	data []byte
	uses atomic.Int32
}

// slabs are the buffers of one upload, and the places of its calls. Both begin with few
// and grow with each call that ends soon, as far as the budget allows.
type slabs struct {
	unit   int // bytes
	budget readahead.Budget

	made  int // used by one goroutine alone, which gets slabs
	free  chan *slab
	calls chan struct{} // a place for each call that may be in flight
	quick atomic.Int64  // calls that ended soon
	grown chan struct{} // receives after such calls, for who waits for a slab
}

func newSlabs(unit int, budget readahead.Budget) *slabs {
	return &slabs{
		unit: unit, budget: budget, free: make(chan *slab, maxSlabs), grown: make(chan struct{}, 1),
		calls: make(chan struct{}, ownSlabs*ownCalls+(maxSlabs-ownSlabs)*grownCalls),
	}
}

// get returns a slab with one use. It waits for a slab that is free, or may be made.
func (s *slabs) get(ctx context.Context) (*slab, error) {
	for {
		select {
		case free := <-s.free:
			return s.reuse(free), nil
		default:
		}
		if s.mayGrow() {
			return s.grow(), nil
		}
		select {
		case free := <-s.free:
			return s.reuse(free), nil
		case <-s.grown:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// reuse returns a free slab at full length.
func (s *slabs) reuse(free *slab) *slab {
	if full := slabUnits * s.unit; len(free.data) < full {
		free.data = make([]byte, full)
	}
	free.uses.Store(1)
	return free
}

// mayGrow reports whether the upload may have one more slab, and takes its place in the
// budget.
func (s *slabs) mayGrow() bool {
	switch {
	case s.made < ownSlabs:
		return true
	case s.made == maxSlabs, int64(s.made-ownSlabs) >= s.quick.Load():
		return false
	}
	return s.budget.TryReserve()
}

// grow returns one slab more, and allows the calls for it. The first slabs are short,
// since most streams are.
func (s *slabs) grow() *slab {
	added := &slab{data: make([]byte, s.unit<<min(s.made, 2))}
	added.uses.Store(1)
	calls := grownCalls
	if s.made++; s.made <= ownSlabs {
		calls = ownCalls
	}
	for range calls {
		s.calls <- struct{}{}
	}
	return added
}

// release ends one use of a slab.
func (s *slabs) release(used *slab) {
	if used.uses.Add(-1) == 0 {
		s.free <- used
	}
}

// call makes a call once there is a place for it, and notes whether it ended soon.
func (s *slabs) call(ctx context.Context, do func() error) error {
	select {
	case <-s.calls:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { s.calls <- struct{}{} }()
	begun := time.Now()
	if err := do(); err != nil {
		return err
	}
	if time.Since(begun) < quickCall {
		s.quick.Add(1)
		select {
		case s.grown <- struct{}{}:
		default: // no one has looked since the last one
		}
	}
	return nil
}

// close gives back the places in the budget.
func (s *slabs) close() {
	for range s.made - ownSlabs {
		s.budget.Free()
	}
}
