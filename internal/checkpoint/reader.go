package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/storage/readahead"
)

// Sizes of the reading of a large state.
const (
	// rangeUnits is the length of a range, which one call reads, in units of the hash.
	rangeUnits = 4

	// readAhead is how many ranges of one state wait for their turn or are in flight at
	// most.
	readAhead = 8

	// layoutCalls is how many calls for one range are in flight at most, if the state has a
	// layout.
	layoutCalls = 4
)

// stateReader reads a large state in ranges, some of them ahead of the handler. It
// continues across touches of the record, which change the ETag but not the body, and
// fails once another delivery acquires the record. Close may be called while another
// goroutine reads.
//
// A range is read ahead under the ETag that is known then. If that fails it is read again
// when its turn comes, and only then the rules of readRange apply: one look at
// the record decides on a refusal, as if nothing were read ahead.
type stateReader struct {
	from *restorer
	ctx  context.Context
	end  context.CancelFunc

	stored stored
	layout blocks.Layout
	ranges *readahead.Reader[rangeHashes]
	rest   []byte // the rest of the range that was handed out last
	sum    blocks.Hash
	pages  blocks.Pages
	err    error // that ended the reading; every later read returns it
}

// rangeHashes are the hashes of the units of a range, and of its pages.
type rangeHashes struct {
	units []blocks.Sum
	pages blocks.Pages
}

// stored is where the body has a state that is read in ranges.
type stored struct {
	of   string // the hash of the recorded state while the body is this one
	hash string // of the whole state
	key  blocks.Key
	from int64 // where it begins in the body
	size int64 // bytes

	place blocks.Place // of its layout
}

// open returns a state in the body.
func (rs *restorer) open(ctx context.Context, s stored) (io.ReadCloser, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	layout, err := rs.layout(ctx, s)
	if err != nil {
		return nil, err
	}
	unlock, err := rs.owned.lockSettled(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if rs.owned.record.StateHash != s.of {
		return nil, ErrReplaced
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &stateReader{from: rs, ctx: ctx, end: cancel, stored: s, layout: layout, sum: blocks.NewHash()}
	store := rs.owned.store
	r.ranges = readahead.New(ctx, readahead.Plan{
		Size: s.size, Length: int64(rangeUnits * store.unit), Ahead: readAhead, Budget: store.budget,
	}, r.fetch)
	rs.readers.add(r)
	return r, nil
}

// layout reads the layout of a state, if it has one.
func (rs *restorer) layout(ctx context.Context, s stored) (l blocks.Layout, err error) {
	if s.place.Size == 0 {
		return l, nil
	}
	if s.place.Size > blocks.MaxLayout {
		err = fmt.Errorf("%w: its layout has %d bytes", ErrDamaged, s.place.Size)
	}
	data := make([]byte, min(s.place.Size, blocks.MaxLayout))
	if err == nil {
		err = rs.readRange(ctx, s.of, data, s.place.At)
	}
	if err == nil {
		if l, err = blocks.ParseLayout(data, s.place.At, s.size); err != nil {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	if err != nil {
		return l, fmt.Errorf("read state of job %s: %w", rs.owned.delivery.ID, err)
	}
	return l, nil
}

// Read implements [io.Reader].
func (r *stateReader) Read(p []byte) (int, error) {
	part, err := r.Next(len(p))
	return copy(p, part), err
}

// Next returns the next bytes of the state, at most so many. They are valid until the next call.
func (r *stateReader) Next(most int) ([]byte, error) {
	if len(r.rest) == 0 && r.err == nil {
		if r.err = r.advance(); r.err != nil {
			r.close()
		}
	}
	if len(r.rest) == 0 {
		return nil, r.err
	}
	part := r.rest[:min(most, len(r.rest))]
	r.rest = r.rest[len(part):]
	return part, nil
}

// advance hands out the next range. It verifies the hash of the state before it hands
// out the last one: a decoder may never read beyond its own end.
func (r *stateReader) advance() error {
	next, err := r.ranges.Next()
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err == nil && next.Err != nil {
		err = r.layout.Read(next.Data, next.Offset, 1, func(data []byte, at int64) error {
			return r.from.readRange(r.ctx, r.stored.of, data, r.stored.from+at)
		})
		if err == nil {
			next.Value = r.hash(next.Data)
		}
	}
	if err != nil {
		return fmt.Errorf("read state of job %s: %w", r.from.owned.delivery.ID, err)
	}
	for _, unit := range next.Value.units {
		r.sum.Add(unit)
	}
	r.pages = r.pages.With(next.Value.pages)
	if r.ranges.Offset() == r.stored.size {
		if r.sum.String() != r.stored.hash {
			return fmt.Errorf("%w: its %d bytes do not have the hash that was saved", ErrDamaged, r.stored.size)
		}
		r.close() // the whole state is in memory
		r.compared()
	}
	r.rest = next.Data
	return nil
}

// fetch tries once to read a range, and hashes it.
func (r *stateReader) fetch(ctx context.Context, data []byte, offset int64) (rangeHashes, error) {
	record := r.from.owned.known()
	if record.StateHash != r.stored.of {
		return rangeHashes{}, ErrReplaced
	}
	err := r.layout.Read(data, offset, layoutCalls, func(data []byte, at int64) error {
		return r.from.owned.store.bodyRange(ctx, record, data, r.stored.from+at)
	})
	if err != nil {
		return rangeHashes{}, err
	}
	return r.hash(data), nil
}

// hash hashes the units of a range, which begins with one, and its pages.
func (r *stateReader) hash(data []byte) (h rangeHashes) {
	for unit := range slices.Chunk(data, r.from.owned.store.unit) {
		h.units = append(h.units, r.stored.key.Sum(unit))
	}
	if r.stored.hash == r.stored.of {
		h.pages = r.stored.key.AddPages(nil, data, r.from.owned.store.page)
	}
	return h
}

// compared makes the state, which is read to its end, the one with which the next is compared.
func (r *stateReader) compared() {
	if len(r.pages) > 0 {
		r.from.sender.restored.Store(&base{manifest: blocks.Manifest{Hash: r.stored.hash, Size: r.stored.size, Layout: r.layout,
			Place: r.stored.place, Pages: r.pages}})
	}
}

// Close ends the reading, and cancels reads in flight. Closing twice changes nothing.
func (r *stateReader) Close() error {
	r.close()
	return nil
}

func (r *stateReader) close() {
	r.end()
	r.from.readers.remove(r)
}

// readers are the open readers of the recorded state. They also measure for how long the
// handler reads it.
type readers struct {
	mu     sync.Mutex
	open   map[*stateReader]bool
	since  time.Time     // since when the state is read; zero while it is not
	before time.Duration // for how long it was read before that
}

func (rs *readers) add(r *stateReader) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.open) == 0 {
		rs.since = time.Now()
	}
	rs.open[r] = true
}

func (rs *readers) remove(r *stateReader) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !rs.open[r] {
		return
	}
	if delete(rs.open, r); len(rs.open) == 0 {
		rs.before += time.Since(rs.since)
		rs.since = time.Time{}
	}
}

// without returns a time of the handler without the time in which it read the state.
func (rs *readers) without(at time.Duration) time.Duration {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	reading := rs.before
	if !rs.since.IsZero() {
		reading += time.Since(rs.since)
	}
	return max(at-reading, 0)
}

// isReading reports whether the recorded state is being read. A reader whose
// context has ended does not count, closed or not.
func (rs *readers) isReading() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for r := range rs.open {
		if r.ctx.Err() == nil {
			return true
		}
	}
	return false
}

// close closes all readers.
func (rs *readers) close() {
	rs.mu.Lock()
	open := slices.Collect(maps.Keys(rs.open))
	rs.mu.Unlock()
	for _, r := range open {
		r.close()
	}
}

// transferBuffers is how many buffers of 4 MiB all transfers of large states of a store
// take together, besides the first one of each.
const transferBuffers = 16
