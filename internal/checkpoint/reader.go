package checkpoint

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

// Sizes of the reading of a large state.
const (
	// rangeUnits is the length of a range, which one call reads, in units of the hash.
	rangeUnits = 4

	// readAhead is how many ranges of one state are in memory at most: the one that is
	// handed out, those that wait for their turn, and those in flight.
	readAhead = 8
)

// stateReader reads a large state in ranges, some of them ahead of the handler. It
// continues across touches of the record, which change the ETag but not the body, and
// fails once another delivery acquires the record. Close may be called while another
// goroutine reads.
//
// A range is read ahead by one try under the ETag that is known then. A try that fails
// decides nothing: when its turn comes the range is read again, and only then the rules
// of [Claim.readRange] apply. So one call at a time is repeated during an outage, and
// one look at the record decides on a refusal, as if nothing were read ahead.
type stateReader struct {
	claim *Claim
	ctx   context.Context
	end   context.CancelFunc

	hash    string // that the whole state must have
	size    int64
	offset  int64     // of the next range that is handed out
	asked   int64     // of the next range that is read ahead
	ranges  []*extent // between the two, in order
	current *extent   // the range that is handed out
	rest    []byte    // what is left of it
	spare   [][]byte  // buffers that are free
	sum     stateHash
	err     error // that ended the reading; every later read returns it

	fetching sync.WaitGroup
	mu       sync.Mutex // guards reserved, and the beginning of a fetch
	reserved int        // places in the store's budget
}

// extent is a range of a state.
type extent struct {
	offset int64
	buffer []byte
	units  [][sha256.Size]byte // the hashes of its units
	err    error               // of the try to read it ahead
	done   chan struct{}       // closed when that try has ended
}

// open returns the state of that hash, which is kept in blocks.
func (c *Claim) open(ctx context.Context, hash string) (io.ReadCloser, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	unlock, err := c.lockSettled(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c.record.StateHash != hash {
		return nil, ErrReplaced
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &stateReader{claim: c, ctx: ctx, end: cancel, hash: hash, size: c.record.StateSize, sum: newStateHash()}
	context.AfterFunc(ctx, r.free)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers[r] = true
	return r, nil
}

// Read implements [io.Reader].
func (r *stateReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 && r.err == nil {
		if r.err = r.advance(); r.err != nil {
			r.close()
		}
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// advance hands out the next range. It verifies the hash of the state before it hands
// out the last one: a decoder may never read beyond its own end.
func (r *stateReader) advance() error {
	if r.offset == r.size {
		return io.EOF
	}
	if r.current != nil {
		r.spare, r.current = append(r.spare, r.current.buffer), nil
	}
	r.fetchAhead()
	next, err := r.await()
	if err != nil {
		return fmt.Errorf("read state of job %s: %w", r.claim.delivery.ID, err)
	}
	for _, unit := range next.units {
		r.sum.add(unit)
	}
	if r.offset += int64(len(next.buffer)); r.offset == r.size {
		if r.sum.String() != r.hash {
			return fmt.Errorf("%w: its %d bytes do not have the hash that was saved", ErrDamaged, r.size)
		}
		r.close() // the whole state is in memory
	}
	r.current, r.rest = next, next.buffer
	return nil
}

// await returns the next range once it is read.
func (r *stateReader) await() (*extent, error) {
	if r.ctx.Err() != nil {
		return nil, context.Cause(r.ctx)
	}
	next := r.ranges[0]
	select {
	case <-next.done:
	case <-r.ctx.Done():
		return nil, context.Cause(r.ctx)
	}
	if next.err != nil {
		if err := r.claim.readRange(r.ctx, r.hash, next.buffer, next.offset); err != nil {
			return nil, err
		}
		next.units = r.hashUnits(next.buffer)
	}
	r.ranges = r.ranges[1:]
	return next, nil
}

// fetchAhead begins to read the ranges that there is room for.
func (r *stateReader) fetchAhead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	length := int64(rangeUnits * r.claim.store.unit)
	for r.asked < r.size && r.hasRoom() {
		next := &extent{offset: r.asked, buffer: r.buffer(min(length, r.size-r.asked)), done: make(chan struct{})}
		r.asked += int64(len(next.buffer))
		r.ranges = append(r.ranges, next)
		r.fetching.Go(func() { r.fetch(next) })
	}
}

// hasRoom reports whether one more range may be read. There is always room for one;
// others need a place in the budget that all transfers of the store share. mu is locked.
func (r *stateReader) hasRoom() bool {
	switch n := len(r.ranges); {
	case r.ctx.Err() != nil || n == readAhead:
		return false
	case n <= r.reserved:
		return true
	case !r.claim.store.budget.tryReserve():
		return false
	}
	r.reserved++
	return true
}

// buffer returns a buffer of that length, a used one if there is one.
func (r *stateReader) buffer(length int64) []byte {
	if last := len(r.spare) - 1; last >= 0 && int64(cap(r.spare[last])) >= length {
		buffer := r.spare[last][:length]
		r.spare = r.spare[:last]
		return buffer
	}
	return make([]byte, length)
}

// fetch tries once to read a range, and hashes it.
func (r *stateReader) fetch(e *extent) {
	defer close(e.done)
	record := r.claim.Record()
	if record.StateHash != r.hash {
		e.err = ErrReplaced
		return
	}
	if e.err = r.claim.store.bodyRange(r.ctx, record, e.buffer, e.offset); e.err == nil {
		e.units = r.hashUnits(e.buffer)
	}
}

// hashUnits hashes the units of a range, which begins with one.
func (r *stateReader) hashUnits(data []byte) (units [][sha256.Size]byte) {
	for unit := range slices.Chunk(data, r.claim.store.unit) {
		units = append(units, sha256.Sum256(unit))
	}
	return units
}

// free gives back the places in the budget, when ctx has ended and nothing is in flight.
func (r *stateReader) free() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fetching.Wait() // no fetch begins any more
	for ; r.reserved > 0; r.reserved-- {
		r.claim.store.budget.free()
	}
}

// Close ends the reading, and cancels what is in flight. Closing twice changes nothing.
func (r *stateReader) Close() error {
	r.close()
	return nil
}

func (r *stateReader) close() {
	r.end()
	r.claim.mu.Lock()
	defer r.claim.mu.Unlock()
	delete(r.claim.readers, r)
}

// isReading reports whether the recorded state is being read. A reader whose
// context has ended does not count, closed or not.
func (c *Claim) isReading() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.readers {
		if r.ctx.Err() == nil {
			return true
		}
	}
	return false
}

// CloseReaders closes all readers of the recorded state: the handler has returned.
func (c *Claim) CloseReaders() {
	c.mu.Lock()
	readers := slices.Collect(maps.Keys(c.readers))
	c.mu.Unlock()
	for _, r := range readers {
		r.close()
	}
}

// budget limits the memory that all transfers of large states of a store take
// together. Each may have one buffer without asking, so that none waits for another;
// a place in the budget is one more of the same size.
type budget chan struct{}

// transferBuffers is how many buffers of 4 MiB there are in a budget.
const transferBuffers = 16

func newBudget() budget { return make(budget, transferBuffers) }

// tryReserve reserves a place, if one is free.
func (b budget) tryReserve() bool {
	select {
	case b <- struct{}{}:
		return true
	default:
		return false
	}
}

// free gives back one place.
func (b budget) free() { <-b }
