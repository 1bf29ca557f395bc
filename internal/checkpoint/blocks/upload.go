// Package blocks keeps a large state in a blob in blocks that are named after their
// content, so that a later state sends only new blocks.
//
//	read ─▶ hash and cut ─▶ group: hash its chunks ─▶ which blocks? ─▶ send what is missing
//
// [Upload] runs all steps concurrently. The bytes stay in the slab that they were
// read into until nothing needs them. The blocks take effect when the caller commits
// their list; package chunks cuts. Ranges that a [Base] has are not read. If few pages of a
// group differ from the base, they alone are sent (patch.go).
package blocks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint/chunks"
	"github.com/spotworker/spotworker/internal/storage/readahead"
)

// splitRun is how many groups are kept in chunks at the begin of new content.
const splitRun = 8

// Each unit is read in so many pieces, which are hashed and cut in steps of so many bytes.
const pieces, step = 4, 64 << 10

// Target is where a state is sent to, and how. All fields are required.
type Target struct {
	// Blob is the blob. It must exist: a staged block without a blob would make the
	// blob's creation fail.
	Blob *blockblob.Client

	// Namer makes the ids of the blocks, and Key the hashes of the units.
	Namer Namer
	Key   Key

	// Unit is the length of the units in which the state is hashed, in bytes: [Unit],
	// but for tests. A slab has four of them.
	Unit int

	// Page is the length of pages, in bytes: [Page], but for tests; 0 to send whole blocks only.
	// Last says that the save ends the claim.
	Page int
	Last bool

	// Cutter cuts the state. It is used for one state.
	Cutter *chunks.Cutter

	// Budget bounds the memory of all uploads: a place for each slab but the first two
	// of each.
	Budget readahead.Budget

	// Timeout is the time of one call, including the SDK's retries.
	Timeout time.Duration
}

// Manifest describes a state: its blocks and units in order, its hash and size.
type Manifest struct {
	Blocks []string
	Units  []UnitHash

	// Layout says where the body of these blocks has the state, and Place where the body has the
	// layout. Pages are the sums of the state's pages.
	Layout Layout
	Place  Place
	Pages  Pages
	Hash   string // see Hash
	Size   int64  // bytes

	// Wrong are the offsets of units in spans of the base that have another hash there.
	Wrong []int64
}

// Upload sends the blocks of a state that are not in known, and adds to it what arrived,
// also before an error: that need not be sent again. It does not read the gaps of the base,
// which begin at from or later. The errors of state are wrapped; only io.EOF itself ends it.
func Upload(ctx context.Context, to Target, known *Set, state io.Reader, base Base, from int64) (Manifest, error) {
	unit := int64(to.Unit)
	u := &upload{
		to: to, known: known, slabs: newSlabs(to.Unit, to.Budget), pieces: make(chan piece),
		rests: make(chan int, 1), seen: map[string]bool{},
		hashes: newUnitHasher(unit, to.Key, base), patcher: newPatcher(&to, known, &base),
	}
	u.base, u.gaps = base, base.gaps(unit, from, known.has, u.patcher.base)
	m, err := u.run(ctx, state)
	for _, id := range u.sent {
		known.addStaged(id)
	}
	return m, err
}

// upload is the sending of one state.
type upload struct {
	to    Target
	known *Set // not changed while sending
	slabs *slabs
	base  Base
	gaps  []gap // not read

	ctx     context.Context
	sending *errgroup.Group

	pieces  chan piece // to hash and cut, in order; without a buffer, so that they still are in the cache
	rests   chan int   // where the group begins that did not end with the slab, for each slab
	groups  []*group
	hashes  unitHasher
	patcher *patcher

	mu   sync.Mutex      // guards what follows
	seen map[string]bool // blocks that this upload sends
	sent []string        // the arrived ones
}

// part is a part of a slab.
type part struct {
	slab *slab
	data []byte
}

// piece is the part of the state that one read put into a slab.
type piece struct {
	slab     *slab
	from, to int
	last     bool // the state, or the range before a gap, ends behind it
	gap      *gap // behind it, or nil
}

// group is a run of chunks that may be one block.
type group struct {
	blocks  []string      // that it is kept in, or
	extents []extent      // of blocks
	run     int           // it and the groups directly before it, all missing in the blob
	decided chan struct{} // closed once both are known
}

func (u *upload) run(ctx context.Context, state io.Reader) (Manifest, error) {
	defer u.slabs.close()
	u.sending, u.ctx = errgroup.WithContext(ctx)
	u.sending.Go(func() error {
		u.process()
		return nil
	})
	size, err := u.read(state)
	close(u.pieces)
	if sendErr := u.sending.Wait(); sendErr != nil {
		return Manifest{}, sendErr // the cause of the reading's end
	}
	if err != nil {
		return Manifest{}, err
	}
	m := Manifest{Units: u.hashes.units, Wrong: u.hashes.wrong, Hash: u.hashes.sum(), Size: size, Pages: u.patcher.pages.sums}
	if err := u.finish(ctx, &m); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// read reads the state to its end; another goroutine hashes and cuts the read part. It waits
// for the cutter only where a slab is full or a gap begins, since the begin of a group that
// did not end moves to the next slab.
func (u *upload) read(state io.Reader) (size int64, err error) {
	into, err := u.slabs.get(u.ctx)
	if err != nil {
		return 0, err
	}
	defer func() { u.slabs.release(into) }()
	for filled, gaps := 0, u.gaps; ; {
		room, next := min(u.to.Unit/pieces, len(into.data)-filled), (*gap)(nil)
		if len(gaps) > 0 && size+int64(room) >= gaps[0].at {
			next, gaps = &gaps[0], gaps[1:]
			room = int(next.at - size)
		}
		n, ended, err := fill(into.data[filled:filled+room], state)
		if err != nil {
			return 0, err
		}
		if ended && next != nil {
			return 0, fmt.Errorf("it ends after %d bytes, before a range that is the same as in the state before", size+int64(n))
		}
		size += int64(n)
		u.pieces <- piece{into, filled, filled + n, ended || next != nil, next}
		filled += n
		switch {
		case ended:
			<-u.rests // until then the cutter uses the slab
			return size, nil
		case next != nil:
			<-u.rests
			if err := u.base.Skip(next.length); err != nil {
				return 0, err
			}
			size += next.length
			if into, filled, err = u.nextSlab(into, len(into.data)); err != nil {
				return 0, err
			}
		case filled == len(into.data):
			if into, filled, err = u.nextSlab(into, <-u.rests); err != nil {
				return 0, err
			}
		}
	}
}

// nextSlab returns a slab that begins with the rest of the one before, whose use by the caller
// ends, and the length of that rest.
func (u *upload) nextSlab(before *slab, rest int) (next *slab, filled int, err error) {
	next, err = u.slabs.get(u.ctx)
	if err != nil {
		return before, 0, err
	}
	filled = copy(next.data, before.data[rest:])
	u.slabs.release(before)
	return next, filled, nil
}

// fill fills the buffer, unless the state ends first. io.ReadFull could not tell its end
// from the io.ErrUnexpectedEOF of a stream that was cut off.
func fill(buffer []byte, state io.Reader) (n int, ended bool, err error) {
	for n < len(buffer) {
		read, err := state.Read(buffer[n:])
		n += read
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

// process hashes and cuts the state, and hands each group to a goroutine. It takes all steps for
// a few bytes at a time, since their costs are mostly those of reading memory: the bytes come
// into the processor's cache once and not for each hash. Where few pages differ from the base, it
// leaves out the search for cuts, which takes half of its time, and uses those of the base.
func (u *upload) process() {
	var c cut
	for p := range u.pieces {
		for from := p.from; from < p.to; from += step {
			data := p.slab.data[from:min(from+step, p.to)]
			u.patcher.pages.write(data)
			u.hashes.write(data)
		}
		switch {
		case p.last || !u.patcher.resembles(int64(p.to-p.from)) || p.to-c.start > longest*u.to.Unit:
			u.cut(&c, p.slab, p.to)
		case p.to-c.searched >= u.to.Unit:
			u.follow(&c, p.slab, p.to)
		}
		if p.last {
			u.endGroup(&c, p.slab, p.to)
		}
		if p.gap != nil {
			u.hashes.skip(p.gap.length)
			u.patcher.pages.skip(p.gap.length)
			u.to.Cutter.Skip(p.gap.length)
			c.offset += p.gap.length
			u.groups = append(u.groups, p.gap.group())
		}
		if p.last || p.to == len(p.slab.data) {
			u.rests <- c.start
			c.start, c.searched = 0, c.searched-c.start
		}
	}
	u.hashes.close()
	u.patcher.pages.close()
}

// cut is the group that has begun and not ended.
type cut struct {
	start    int   // in the slab
	searched int   // until there in the slab
	ends     []int // of its chunks, in the group
	offset   int64 // in the state
}

// endGroup ends the group there, unless it is empty.
func (u *upload) endGroup(c *cut, in *slab, at int) {
	if c.start < at {
		u.begin(part{slab: in, data: in.data[c.start:at]}, c.ends, c.offset)
		*c = cut{start: at, searched: at, offset: c.offset + int64(at-c.start)}
	}
}

// longest is the longest group that is not searched for cuts, in units: less than a slab.
const longest = slabUnits - 1

// follow ends groups at cuts of the base, in the part of a slab up to there that was not searched:
// at the first one and at the last one.
func (u *upload) follow(c *cut, in *slab, to int) {
	at := func(offset int64) int { return c.start + int(offset-c.offset) }
	searched := c.offset + int64(c.searched-c.start)
	if first, last, ok := u.patcher.base.within(searched, c.offset+int64(to-c.start)); ok {
		u.to.Cutter.Skip(last - searched)
		u.endGroup(c, in, at(first))
		u.endGroup(c, in, at(last))
	}
}

// cut cuts a slab up to there.
func (u *upload) cut(c *cut, in *slab, to int) {
	for c.searched < to {
		n, end := u.to.Cutter.Next(in.data[c.searched:to])
		if c.searched += n; end == chunks.None {
			return
		}
		c.ends = append(c.ends, c.searched-c.start)
		if end == chunks.Group {
			u.endGroup(c, in, c.searched)
		}
	}
}

// begin hashes the chunks of a group, which begins at an offset of the state, in the background
// and sends the missing ones. The last chunk ends with the group, whether the cutter ended it or
// the stream did.
func (u *upload) begin(p part, ends []int, offset int64) {
	if n := len(ends); n == 0 || ends[n-1] < len(p.data) {
		ends = append(ends, len(p.data))
	}
	g, before := &group{decided: make(chan struct{})}, (*group)(nil)
	if n := len(u.groups); n > 0 {
		before = u.groups[n-1]
	}
	u.groups = append(u.groups, g)
	p.slab.uses.Add(1)
	u.sending.Go(func() error {
		defer u.slabs.release(p.slab)
		if patched, err := u.patch(g, p.data, offset); patched {
			close(g.decided)
			return err
		}
		u.decide(g, before, p.data, ends)
		at := 0
		for i, id := range g.blocks {
			end := len(p.data)
			if len(g.blocks) > 1 {
				end = ends[i]
			}
			u.send(id, part{slab: p.slab, data: p.data[at:end]})
			at = end
		}
		return nil
	})
}

// decide determines the blocks of a group: one for each chunk, or one for all of it.
//
// In chunks a later change sends least, so a group is kept so where changes are likely:
// where the blob has a part of it, and at the begin of new content behind unchanged
// content, so that places that change each time are in chunks after
// a few saves. A first save, and the rest of a run of new groups, are one block for each
// group: a state that is rewritten each time would cost four times the calls.
func (u *upload) decide(g, before *group, data []byte, ends []int) {
	defer close(g.decided)
	names, at, familiar := make([]string, 0, len(ends)), 0, false
	for _, end := range ends {
		id := u.to.Namer.Chunk(data[at:end])
		names, at = append(names, id), end
		familiar = familiar || u.known.has(id)
	}
	whole := u.to.Namer.Group(names, len(data))
	switch {
	case u.known.has(whole):
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
	if g.blocks = []string{whole}; len(names) == 1 || len(u.known.committed) > 0 && g.run <= splitRun {
		g.blocks = names
	}
}

// send sends one block in the background, unless the blob or this upload has it.
func (u *upload) send(id string, p part) {
	u.mu.Lock()
	there := u.known.has(id) || u.seen[id]
	u.seen[id] = true
	u.mu.Unlock()
	if there {
		return
	}
	p.slab.uses.Add(1)
	u.sending.Go(func() error {
		defer u.slabs.release(p.slab)
		return u.slabs.call(u.ctx, func() error { return u.stage(id, p.data) })
	})
}

// stage makes the call for one block.
func (u *upload) stage(id string, data []byte) error {
	ctx, cancel := context.WithTimeout(u.ctx, u.to.Timeout)
	defer cancel()
	if _, err := u.to.Blob.StageBlock(ctx, id, streaming.NopCloser(bytes.NewReader(data)), nil); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sent = append(u.sent, id)
	return nil
}
