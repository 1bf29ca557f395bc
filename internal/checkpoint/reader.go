package checkpoint

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/readahead"
)

// Sizes of the reading of a large state.
const (
	// rangeUnits is the length of a range, which one call reads, in units of the hash.
	rangeUnits = 4

	// readAhead is how many ranges of one state wait for their turn or are in flight at
	// most.
	readAhead = 8
)

// stateReader reads a large state in ranges, some of them ahead of the handler. It
// continues across touches of the record, which change the ETag but not the body, and
// fails once another delivery acquires the record. Close may be called while another
// goroutine reads.
//
// A range is read ahead under the ETag that is known then. If that fails it is read again
// when its turn comes, and only then the rules of [Claim.readRange] apply: one look at
// the record decides on a refusal, as if nothing were read ahead.
type stateReader struct {
	claim *Claim
	ctx   context.Context
	end   context.CancelFunc

	stored stored
	ranges *readahead.Reader[unitHashes]
	rest   []byte // what is left of the range that was handed out last
	sum    blocks.Hash
	err    error // that ended the reading; every later read returns it
}

// unitHashes are the hashes of the units of a range.
type unitHashes [][sha256.Size]byte

// stored is where the body has a state that is read in ranges.
type stored struct {
	of   string // the hash of the recorded state while the body is this one
	hash string // that the whole of what is read must have
	from int64  // where it begins in the body
	size int64  // bytes
}

// open returns a state in the body.
func (c *Claim) open(ctx context.Context, s stored) (io.ReadCloser, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	unlock, err := c.lockSettled(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c.record.StateHash != s.of {
		return nil, ErrReplaced
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &stateReader{claim: c, ctx: ctx, end: cancel, stored: s, sum: blocks.NewHash()}
	r.ranges = readahead.New(ctx, readahead.Config{
		Size: s.size, Length: int64(rangeUnits * c.store.unit), Ahead: readAhead, Budget: c.store.budget,
	}, r.fetch)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.readers) == 0 {
		c.restoring = time.Now()
	}
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
	next, err := r.ranges.Next()
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err == nil && next.Err != nil {
		if err = r.claim.readRange(r.ctx, r.stored.of, next.Data, r.stored.from+next.Offset); err == nil {
			next.Value = r.hashUnits(next.Data)
		}
	}
	if err != nil {
		return fmt.Errorf("read state of job %s: %w", r.claim.delivery.ID, err)
	}
	for _, unit := range next.Value {
		r.sum.Add(unit)
	}
	if r.ranges.Offset() == r.stored.size {
		if r.sum.String() != r.stored.hash {
			return fmt.Errorf("%w: its %d bytes do not have the hash that was saved", ErrDamaged, r.stored.size)
		}
		r.close() // the whole state is in memory
	}
	r.rest = next.Data
	return nil
}

// fetch tries once to read a range, and hashes it.
func (r *stateReader) fetch(ctx context.Context, data []byte, offset int64) (unitHashes, error) {
	record := r.claim.Record()
	if record.StateHash != r.stored.of {
		return nil, ErrReplaced
	}
	if err := r.claim.store.bodyRange(ctx, record, data, r.stored.from+offset); err != nil {
		return nil, err
	}
	return r.hashUnits(data), nil
}

// hashUnits hashes the units of a range, which begins with one.
func (r *stateReader) hashUnits(data []byte) (units unitHashes) {
	for unit := range slices.Chunk(data, r.claim.store.unit) {
		units = append(units, sha256.Sum256(unit))
	}
	return units
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
	if !r.claim.readers[r] {
		return
	}
	if delete(r.claim.readers, r); len(r.claim.readers) == 0 {
		r.claim.restored += time.Since(r.claim.restoring)
		r.claim.restoring = time.Time{}
	}
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

// transferBuffers is how many buffers of 4 MiB all transfers of large states of a store
// take together, besides the first one of each.
const transferBuffers = 16
