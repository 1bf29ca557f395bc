package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint/chunks"
	"github.com/spotworker/spotworker/internal/readahead"
)

// Sizes of the saving of a large state.
const (
	// slabUnits is the length of a slab, in units of the hash: 4 MiB, which holds a
	// group of chunks.
	slabUnits = 4

	// maxSlabs is how many slabs one save uses at most, ownSlabs how many it may have
	// without a place in the budget.
	maxSlabs, ownSlabs = 10, 2

	// ownCalls is how many calls may be in flight for a slab that needs no place, and
	// grownCalls for one that has it: 128 for a save that has all.
	ownCalls, grownCalls = 4, 15

	// Connections is how many connections to keep for large states: as many as a save has
	// blocks in flight whose chunks are new. With 16, a third of the calls would open one.
	Connections = 64

	// splitRun is how many groups are kept in chunks at the begin of what is new.
	splitRun = 8

	// quickCall is how long a call takes where more calls at once are no harm. On a slow
	// network they would share what one of them needs to end before its timeout.
	quickCall = 5 * time.Second
)

// stager saves one large state in blocks.
//
//	     ┌──▶ hash of the state
//	read ┤
//	     └──▶ cut ─▶ group: hash its chunks ─▶ which blocks? ─▶ send what is missing
//
// Each step runs beside the others. The bytes stay in the slab that they were read into
// until nothing needs them.
type stager struct {
	client *blockblob.Client
	namer  namer
	known  *blockSet // blocks that need not be sent; not changed while staging
	limit  int64     // bytes
	unit   int       // bytes
	budget readahead.Budget
	cutter *chunks.Cutter

	ctx     context.Context
	sending *errgroup.Group

	free   chan *slab
	slabs  int           // in use or free
	calls  chan struct{} // a place for each call that may be in flight
	quick  atomic.Int64  // calls that ended soon
	grow   chan struct{} // receives after such calls, for a reader that waits for a slab
	parts  chan part     // to hash, in order
	pieces chan piece    // to cut, in order
	rests  chan int      // where the group begins that did not end with the slab, for each slab
	groups []*group

	mu   sync.Mutex      // guards what follows
	seen map[string]bool // blocks that this save sends
	sent []string        // those that arrived
}

// slab is a part of the state in memory.
type slab struct {
	data []byte
	uses atomic.Int32
}

// part is a part of a slab.
type part struct {
	slab *slab
	data []byte
}

// piece is what one read put into a slab.
type piece struct {
	slab     *slab
	from, to int
	last     bool // the state ends behind it
}

// group is a run of chunks that may be one block.
type group struct {
	blocks  []string      // that it is kept in
	run     int           // it and the groups directly before it of which the record has nothing
	decided chan struct{} // closed once both are known
}

// stage cuts a state into chunks and uploads the blocks that the record lacks. They
// take effect when they are committed. The record must exist: a staged block
// without a blob would make the blob's creation fail. Blocks that arrived before
// an error need not be sent again.
func (s *Store) stage(ctx context.Context, id string, state io.Reader, known *blockSet) (manifest, error) {
	st := &stager{
		client: s.blob(id), namer: newNamer(id), known: known, limit: s.maxStream, unit: s.unit, budget: s.budget, cutter: s.cutter(),
		free: make(chan *slab, maxSlabs), calls: make(chan struct{}, ownSlabs*ownCalls+(maxSlabs-ownSlabs)*grownCalls), parts: make(chan part, slabUnits),
		grow: make(chan struct{}, 1), pieces: make(chan piece, slabUnits), rests: make(chan int, 1), seen: map[string]bool{},
	}
	m, err := st.run(ctx, state)
	for _, id := range st.sent {
		known.addStaged(id)
	}
	if err != nil {
		return manifest{}, fmt.Errorf("send state of job %s: %w", id, err)
	}
	return m, nil
}

func (s *stager) run(ctx context.Context, state io.Reader) (manifest, error) {
	defer s.freeBudget()
	s.sending, s.ctx = errgroup.WithContext(ctx)
	sum := newStateHash()
	s.sending.Go(func() error {
		s.hash(sum)
		return nil
	})
	s.sending.Go(func() error {
		s.cut()
		return nil
	})
	size, err := s.read(state)
	close(s.parts)
	close(s.pieces)
	if sendErr := s.sending.Wait(); sendErr != nil {
		return manifest{}, sendErr // the cause of what stopped the reading
	}
	if err != nil {
		return manifest{}, err
	}
	m := manifest{blocks: []string{}, hash: sum.String(), size: size}
	for _, g := range s.groups {
		m.blocks = append(m.blocks, g.blocks...)
	}
	if kept := lengthOf(m.blocks); kept != size {
		return manifest{}, fmt.Errorf("its blocks have %d of its %d bytes: this is a bug, and the last checkpoint stays", kept, size)
	}
	return m, nil
}

// read reads the state to its end; other goroutines hash and cut what it has read. It
// waits for the cutter only where a slab is full, since the begin of a group that did not
// end moves to the next.
func (s *stager) read(state io.Reader) (size int64, err error) {
	into, err := s.slab()
	if err != nil {
		return 0, err
	}
	defer func() { s.release(into) }()
	for filled := 0; ; {
		n, ended, err := readChunk(state, into.data[filled:min(filled+s.unit, len(into.data))])
		if err != nil {
			return 0, err
		}
		if size += int64(n); size > s.limit {
			return 0, fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, s.limit)
		}
		into.uses.Add(1)
		s.parts <- part{into, into.data[filled : filled+n]}
		s.pieces <- piece{into, filled, filled + n, ended}
		filled += n
		switch {
		case ended:
			<-s.rests // until then the cutter uses the slab
			return size, nil
		case filled == len(into.data):
			next, err := s.slab()
			if err != nil {
				return 0, err
			}
			filled = copy(next.data, into.data[<-s.rests:])
			s.release(into)
			into = next
		}
	}
}

// cut cuts the state, and hands each group to a goroutine.
func (s *stager) cut() {
	start, ends := 0, []int(nil) // of the group, in the slab; ends of its chunks, in the group
	for p := range s.pieces {
		for at := p.from; at < p.to; {
			n, end := s.cutter.Next(p.slab.data[at:p.to])
			if at += n; end == chunks.None {
				break
			}
			ends = append(ends, at-start)
			if end == chunks.Group {
				s.begin(part{p.slab, p.slab.data[start:at]}, ends)
				start, ends = at, nil
			}
		}
		if p.last && start < p.to {
			s.begin(part{p.slab, p.slab.data[start:p.to]}, ends)
		}
		if p.last || p.to == len(p.slab.data) {
			s.rests <- start
			start = 0
		}
	}
}

// slab returns a slab that nothing uses. The first ones are short, since most streams are.
func (s *stager) slab() (*slab, error) {
	for {
		select {
		case free := <-s.free:
			return s.reuse(free), nil
		default:
		}
		if s.mayGrow() {
			return s.added(), nil
		}
		select {
		case free := <-s.free:
			return s.reuse(free), nil
		case <-s.grow:
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		}
	}
}

// added returns one slab more, and allows the calls for it.
func (s *stager) added() *slab {
	added := &slab{data: make([]byte, s.unit<<min(s.slabs, 2))}
	added.uses.Store(1)
	calls := grownCalls
	if s.slabs++; s.slabs <= ownSlabs {
		calls = ownCalls
	}
	for range calls {
		s.calls <- struct{}{}
	}
	return added
}

// reuse returns a free slab at full length.
func (s *stager) reuse(free *slab) *slab {
	if full := slabUnits * s.unit; len(free.data) < full {
		free.data = make([]byte, full)
	}
	free.uses.Store(1)
	return free
}

// mayGrow reports whether the save may have one more slab. It grows by one with each
// call that ends soon.
func (s *stager) mayGrow() bool {
	switch {
	case s.slabs < ownSlabs:
		return true
	case s.slabs == maxSlabs, int64(s.slabs-ownSlabs) >= s.quick.Load():
		return false
	}
	return s.budget.TryReserve()
}

// freeBudget gives back the places in the budget.
func (s *stager) freeBudget() {
	for range s.slabs - ownSlabs {
		s.budget.Free()
	}
}

// release ends one use of a slab.
func (s *stager) release(used *slab) {
	if used.uses.Add(-1) == 0 {
		s.free <- used
	}
}

// hash hashes the state in its units, wherever it is cut.
func (s *stager) hash(sum stateHash) {
	unit, filled := sha256.New(), 0
	for p := range s.parts {
		for data := p.data; len(data) > 0; {
			n := min(len(data), s.unit-filled)
			_, _ = unit.Write(data[:n]) // a hash never returns an error
			data = data[n:]
			if filled += n; filled == s.unit {
				sum.add([sha256.Size]byte(unit.Sum(nil)))
				unit.Reset()
				filled = 0
			}
		}
		s.release(p.slab)
	}
	if filled > 0 {
		sum.add([sha256.Size]byte(unit.Sum(nil)))
	}
}

// begin hashes the chunks of a group in the background and sends what is missing of it.
// The last chunk ends with the group, whether the cutter ended it or the stream did.
func (s *stager) begin(p part, ends []int) {
	if n := len(ends); n == 0 || ends[n-1] < len(p.data) {
		ends = append(ends, len(p.data))
	}
	g, before := &group{decided: make(chan struct{})}, (*group)(nil)
	if n := len(s.groups); n > 0 {
		before = s.groups[n-1]
	}
	s.groups = append(s.groups, g)
	p.slab.uses.Add(1)
	s.sending.Go(func() error {
		defer s.release(p.slab)
		s.decide(g, before, p.data, ends)
		at := 0
		for i, id := range g.blocks {
			end := len(p.data)
			if len(g.blocks) > 1 {
				end = ends[i]
			}
			s.send(id, part{p.slab, p.data[at:end]})
			at = end
		}
		return nil
	})
}

// decide determines the blocks of a group: one for each chunk, or one for all of it.
//
// In chunks a later change sends least, so a group is kept so where changes are to be
// expected: where the record has a part of it, and at the begin of what is new behind
// something that did not change, so that places that change each time are in chunks after
// a few saves. A first save, and the rest of a run of new groups, are one block for each
// group: a state that is rewritten each time would cost four times the calls.
func (s *stager) decide(g, before *group, data []byte, ends []int) {
	defer close(g.decided)
	names, at, familiar := make([]string, 0, len(ends)), 0, false
	for _, end := range ends {
		id := s.namer.chunk(data[at:end])
		names, at = append(names, id), end
		familiar = familiar || s.known.has(id)
	}
	whole := s.namer.group(names, len(data))
	switch {
	case s.known.has(whole):
		g.blocks = []string{whole}
		return
	case familiar:
		g.blocks = names
		return
	}
	g.run = 1
	if before != nil {
		<-before.decided
		g.run += before.run
	}
	if g.blocks = []string{whole}; len(names) == 1 || len(s.known.committed) > 0 && g.run <= splitRun {
		g.blocks = names
	}
}

// send uploads one block in the background, unless the record or this save has it.
func (s *stager) send(id string, p part) {
	s.mu.Lock()
	there := s.known.has(id) || s.seen[id]
	s.seen[id] = true
	s.mu.Unlock()
	if there {
		return
	}
	p.slab.uses.Add(1)
	s.sending.Go(func() error {
		defer s.release(p.slab)
		select {
		case <-s.calls:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
		defer func() { s.calls <- struct{}{} }()
		ctx, cancel := context.WithTimeout(s.ctx, transferTimeout)
		defer cancel()
		begun := time.Now()
		if _, err := s.client.StageBlock(ctx, id, streaming.NopCloser(bytes.NewReader(p.data)), nil); err != nil {
			return err
		}
		if time.Since(begun) < quickCall {
			s.quick.Add(1)
			select {
			case s.grow <- struct{}{}:
			default: // the reader has not looked since the last one
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sent = append(s.sent, id)
		return nil
	})
}
