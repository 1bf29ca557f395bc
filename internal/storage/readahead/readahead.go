// Package readahead reads a large object in ranges and hands them out in order, while
// later ones are in flight.
//
// A range is read ahead by one try. A try that fails decides nothing: its error is
// handed out with the range when its turn comes, and the caller may read the range
// again. So one call at a time is repeated during an outage, as if nothing were read
// ahead.
package readahead

import (
	"context"
	"io"
	"sync"
)

// Plan says what to read.
type Plan struct {
	// Size is the object's length in bytes, and Length the length of a range; the last
	// one may be shorter.
	Size, Length int64

	// Ahead is how many ranges are in memory at most, without the range that was handed
	// out last.
	Ahead int

	// Budget has a place for each of them but one.
	Budget Budget
}

// Range is a part of an object.
type Range[T any] struct {
	Offset int64
	Data   []byte
	Value  T     // the result of the try
	Err    error // of the try

	done chan struct{} // closed when the try has ended
}

// Reader reads one object. Its methods are for one goroutine.
type Reader[T any] struct {
	ctx   context.Context
	fetch func(ctx context.Context, data []byte, offset int64) (T, error)
	c     Plan

	offset  int64       // of the next range that is handed out
	asked   int64       // of the next range that is read ahead
	ranges  []*Range[T] // between the two, in order
	current *Range[T]   // the range that was handed out last
	spare   [][]byte    // buffers that are free

	fetching sync.WaitGroup
	mu       sync.Mutex // guards reserved, and the beginning of a fetch
	reserved int        // places in the budget
}

// New returns a reader. fetch fills data with the object's bytes from offset on; it is
// called from several goroutines. When ctx ends, fetches in flight are cancelled, and the
// places in the budget are given back when they have ended.
func New[T any](ctx context.Context, c Plan, fetch func(ctx context.Context, data []byte, offset int64) (T, error)) *Reader[T] {
	r := &Reader[T]{ctx: ctx, fetch: fetch, c: c}
	context.AfterFunc(ctx, r.free)
	return r
}

// Offset returns where the next range begins: all before it was handed out.
func (r *Reader[T]) Offset() int64 { return r.offset }

// Next returns the next range, which is valid until the next call. After the last one
// the error is [io.EOF]; otherwise it is the cause of the end of ctx.
func (r *Reader[T]) Next() (*Range[T], error) {
	if r.offset == r.c.Size {
		return nil, io.EOF
	}
	if r.current != nil {
		r.spare, r.current = append(r.spare, r.current.Data), nil
	}
	r.fetchAhead()
	if r.ctx.Err() != nil {
		return nil, context.Cause(r.ctx)
	}
	next := r.ranges[0]
	select {
	case <-next.done:
	case <-r.ctx.Done():
		return nil, context.Cause(r.ctx)
	}
	r.ranges, r.current = r.ranges[1:], next
	r.offset += int64(len(next.Data))
	return next, nil
}

// fetchAhead begins to read the ranges that there is room for.
func (r *Reader[T]) fetchAhead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.asked < r.c.Size && r.hasRoom() {
		next := &Range[T]{Offset: r.asked, Data: r.buffer(min(r.c.Length, r.c.Size-r.asked)), done: make(chan struct{})}
		r.asked += int64(len(next.Data))
		r.ranges = append(r.ranges, next)
		r.fetching.Go(func() {
			defer close(next.done)
			next.Value, next.Err = r.fetch(r.ctx, next.Data, next.Offset)
		})
	}
}

// hasRoom reports whether one more range may be read. There is always room for one;
// others need a place in the budget. mu is locked.
func (r *Reader[T]) hasRoom() bool {
	switch n := len(r.ranges); {
	case r.ctx.Err() != nil || n == r.c.Ahead:
		return false
	case n <= r.reserved:
		return true
	case !r.c.Budget.TryReserve():
		return false
	}
	r.reserved++
	return true
}

// buffer returns a buffer of that length, a used one if there is one.
func (r *Reader[T]) buffer(length int64) []byte {
	if last := len(r.spare) - 1; last >= 0 && int64(cap(r.spare[last])) >= length {
		buffer := r.spare[last][:length]
		r.spare = r.spare[:last]
		return buffer
	}
	return make([]byte, length)
}

// free gives back the places in the budget, when ctx has ended and nothing is in flight.
func (r *Reader[T]) free() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fetching.Wait() // no further fetch begins
	for ; r.reserved > 0; r.reserved-- {
		r.c.Budget.Free()
	}
}

// Budget limits the memory that several transfers take together. Each may have one
// buffer without asking, so that none waits for another; a place in the budget is one
// more of the same size.
type Budget chan struct{}

// NewBudget returns a budget with that many places.
func NewBudget(places int) Budget { return make(Budget, places) }

// TryReserve reserves a place, if one is free.
func (b Budget) TryReserve() bool {
	select {
	case b <- struct{}{}:
		return true
	default:
		return false
	}
}

// Free gives back one place.
func (b Budget) Free() { <-b }
