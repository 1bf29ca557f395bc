package blocks

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// A state that has changed in a few pages keeps the blocks of its base. The changed pages alone
// are sent, in blocks of pages, and a layout says which ranges of the body are the state.
//
//	body: │ blocks │ blocks of pages │ layout │

// Bounds of the pages that one save sends.
const (
	patchShare  = 4       // a group is patched if at most this part of its bytes has changed
	patchPages  = 1 << 16 // pages of one save
	movedRanges = 1 << 18 // ranges of one save that have moved
	patchCalls  = 4       // blocks of pages in flight, of about 1 MiB each
	patchBlocks = 24_000  // blocks of the base; a blob has at most 50,000, and a save adds as many at most
)

// extent is a range of a block.
type extent struct {
	block      string
	patch      *patch // the block of pages, if it has no id yet
	at, length int64
}

// patch is a block of pages.
type patch struct {
	id   string
	data []byte
}

// patcher finds the pages of a state that differ from the base, and gathers them.
type patcher struct {
	pages *pager
	base  *places // nil if the base cannot be used

	mu      sync.Mutex
	current *patch
	spare   []byte      // an empty buffer, or nil
	left    int         // pages that may be sent
	moves   int         // ranges that may move
	buffers chan []byte // the buffers of blocks of pages that are not in use
}

// places are the extents of a state in a blob.
type places struct {
	starts  []int64
	extents []extent
}

// places returns the extents of the state if the blob has all its blocks.
func (m *Manifest) places(has func(id string) bool) *places {
	starts, at := make([]int64, 0, len(m.Blocks)), int64(0)
	for _, id := range m.Blocks {
		length, ok := blockLength(id)
		if !ok || !has(id) {
			return nil
		}
		starts, at = append(starts, at), at+length
	}
	if !m.fits(at) {
		return nil
	}
	room := len(m.Blocks) + len(m.Layout.ranges)
	all, size := places{make([]int64, 0, room), make([]extent, 0, room)}, int64(0)
	add := func(block int, at, length int64) {
		all.starts, all.extents = append(all.starts, size), append(all.extents, extent{block: m.Blocks[block], at: at, length: length})
		size += length
	}
	if m.Layout.ranges == nil {
		for i := range starts {
			add(i, 0, end(starts, i, at)-starts[i])
		}
		return &all
	}
	for _, r := range m.Layout.ranges {
		i, exact := slices.BinarySearch(starts, r.at)
		if !exact {
			i--
		}
		for ; r.length > 0; i++ {
			n := min(r.length, end(starts, i, at)-r.at)
			add(i, r.at-starts[i], n)
			r.at, r.length = r.at+n, r.length-n
		}
	}
	return &all
}

// fits reports whether the body of the state has so many bytes.
func (m *Manifest) fits(body int64) bool {
	if m.Layout.ranges == nil {
		return body == m.Size
	}
	return m.Layout.size() == m.Size && body == m.Place.At+m.Place.Size
}

// end returns where a range ends that begins at starts[i], if all end at last.
func end(starts []int64, i int, last int64) int64 {
	if i+1 < len(starts) {
		return starts[i+1]
	}
	return last
}

// slice returns the extents of a part of the state.
func (p *places) slice(from, to int64) (all []extent) {
	i, exact := slices.BinarySearch(p.starts, from)
	if !exact {
		i--
	}
	for ; i < len(p.starts) && p.starts[i] < to; i++ {
		e := p.extents[i]
		low, high := max(from, p.starts[i]), min(to, p.starts[i]+e.length)
		e.at, e.length = e.at+low-p.starts[i], high-low
		all = append(all, e)
	}
	return all
}

// within returns the first and the last begin of an extent behind one offset and up to another.
func (p *places) within(from, to int64) (first, last int64, ok bool) {
	i, _ := slices.BinarySearch(p.starts, from+1)
	end, _ := slices.BinarySearch(p.starts, to+1)
	if i >= end {
		return 0, 0, false
	}
	return p.starts[i], p.starts[end-1], true
}

// mayGrow reports whether a save may add pages to the state. The last save of a claim may add more
// pages.
func (m *Manifest) mayGrow(last bool) bool {
	factor := int64(1)
	if last {
		factor = endFactor
	}
	patches := 0
	for _, id := range m.Blocks {
		if isKind(id, patchKind) {
			patches++
		}
	}
	return int64(len(m.Layout.ranges)) <= factor*maxRanges && int64(patches) <= factor*maxPatches && len(m.Blocks) <= patchBlocks &&
		lengthOf(m.Blocks) <= m.Size+factor*m.Size/maxExcess
}

func newPatcher(to *Target, known *Set, base *Base) *patcher {
	if base.Blocks == nil && len(base.Pages) > 0 {
		base.Blocks = known.order
	}
	p := &patcher{
		pages: newPager(to.Page, to.Key, base.Pages), left: patchPages, moves: movedRanges,
		buffers: make(chan []byte, patchCalls),
	}
	for range patchCalls {
		p.buffers <- nil
	}
	if p.pages.page > 0 && len(base.Pages) > 0 && base.mayGrow(to.Last) {
		p.base = base.places(known.has)
	}
	if base.Layout.ranges != nil && p.base == nil {
		base.Skip = nil
	}
	return p
}

// resembles reports whether a group of the last bytes would be patched: few of their pages differ
// from the base at the same offset.
func (p *patcher) resembles(bytes int64) bool {
	if p.base == nil || len(p.pages.sums) == maxPages {
		return false
	}
	first, end, changed := (p.pages.at-bytes)/p.pages.page, p.pages.at/p.pages.page, int64(0)
	for n := first; n < end; n++ {
		if !p.pages.isAt(n, n) {
			changed++
		}
	}
	return first < end && changed*patchShare <= end-first
}

// patch describes a group by extents of the base and by its changed pages, unless much has
// changed. It keeps a copy of these pages.
func (u *upload) patch(g *group, data []byte, from int64) (ok bool, err error) {
	p := u.patcher
	if p.base == nil {
		return false, nil
	}
	all, changed, moved := p.compare(from, from+int64(len(data)))
	if changed*patchShare > int64(len(data)) {
		return false, nil
	}
	if changed == 0 {
		for _, r := range all {
			g.extents = append(g.extents, p.base.slice(r.was, r.was+r.to-r.from)...)
		}
		if isWhole(g.extents) {
			return true, nil
		}
		g.extents = nil
	}
	pages, ranges := int((changed+p.pages.page-1)/p.pages.page), 0
	if moved {
		ranges = p.count(all)
	}
	if !p.reserve(pages, ranges) {
		return false, nil
	}
	return true, u.gather(g, all, data, from)
}

// reserve reports whether a group may send so many pages and move so many ranges.
func (p *patcher) reserve(pages, ranges int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left < pages || p.moves < ranges {
		return false
	}
	p.left, p.moves = p.left-pages, p.moves-ranges
	return true
}

// gather makes the extents of a group.
func (u *upload) gather(g *group, all []compared, data []byte, from int64) error {
	p := u.patcher
	p.mu.Lock()
	for _, r := range all {
		if r.was == none {
			g.extents = append(g.extents, p.add(data[r.from-from:r.to-from]))
		} else {
			g.extents = append(g.extents, p.base.slice(r.was, r.was+r.to-r.from)...)
		}
	}
	var full *patch
	if p.current != nil && len(p.current.data) >= u.to.Unit {
		full, p.current = p.current, nil
	}
	p.mu.Unlock()
	if full == nil {
		return nil
	}
	return u.sendPages(full)
}

// add copies changed bytes to the current block of pages. mu is locked.
func (p *patcher) add(data []byte) extent {
	if p.current == nil {
		p.current = &patch{data: p.spare}
		p.spare = nil
	}
	e := extent{patch: p.current, at: int64(len(p.current.data)), length: int64(len(data))}
	p.current.data = append(p.current.data, data...)
	return e
}

// sendPages sends a block of pages in the background. It waits while too many are in flight.
func (u *upload) sendPages(full *patch) error {
	full.id = u.to.Namer.name(full.data, len(full.data), patchKind)
	select {
	case free := <-u.patcher.buffers:
		u.patcher.keep(free)
	case <-u.ctx.Done():
		return context.Cause(u.ctx)
	}
	u.sending.Go(func() error {
		err := u.slabs.call(u.ctx, func() error { return u.stage(full.id, full.data) })
		u.patcher.buffers <- full.data[:0]
		full.data = nil
		return err
	})
	return nil
}

// keep keeps a free buffer for the next block of pages.
func (p *patcher) keep(free []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spare == nil {
		p.spare = free
	}
}

// isWhole reports whether extents are whole blocks.
func isWhole(all []extent) bool {
	return !slices.ContainsFunc(all, func(e extent) bool {
		length, ok := blockLength(e.block)
		return e.patch != nil || !ok || e.at != 0 || e.length != length
	})
}

// extents returns the extents of the state in order. Neighbouring ranges of a block are one.
func (u *upload) extents() (all []extent) {
	for _, g := range u.groups {
		for _, id := range g.blocks {
			length, _ := blockLength(id)
			g.extents = append(g.extents, extent{block: id, length: length})
		}
		for _, e := range g.extents {
			if n := len(all); n > 0 && all[n-1].block == e.block && all[n-1].patch == e.patch && all[n-1].at+all[n-1].length == e.at {
				all[n-1].length += e.length
				continue
			}
			all = append(all, e)
		}
	}
	return all
}

// finish sends the last block of pages and the layout, if the state needs them, and completes
// the manifest.
func (u *upload) finish(ctx context.Context, m *Manifest) error {
	u.ctx = ctx
	all := u.extents()
	m.Blocks = []string{}
	if isWhole(all) {
		for _, e := range all {
			m.Blocks = append(m.Blocks, e.block)
		}
		return u.check(all, m.Size)
	}
	sending, ctx := errgroup.WithContext(ctx)
	u.ctx = ctx
	if last := u.patcher.current; last != nil {
		last.id = u.to.Namer.name(last.data, len(last.data), patchKind)
		sending.Go(func() error { return u.stage(last.id, last.data) })
	}
	m.layOut(all)
	layout := m.Layout.encode()
	id := u.to.Namer.name(layout, len(layout), layoutKind)
	m.Blocks, m.Place.Size = append(m.Blocks, id), int64(len(layout))
	sending.Go(func() error { return u.stage(id, layout) })
	if err := sending.Wait(); err != nil {
		return err
	}
	return u.check(all, m.Size)
}

// layOut makes the layout of a state of these extents, whose blocks have ids now, and the blocks
// of the body before it.
func (m *Manifest) layOut(all []extent) {
	at := map[string]int64{}
	for _, patches := range []bool{false, true} {
		for i := range all {
			if e := &all[i]; e.patch != nil {
				e.block, e.patch = e.patch.id, nil
			}
			id := all[i].block
			if _, there := at[id]; there || isKind(id, patchKind) != patches {
				continue
			}
			at[id] = m.Place.At
			length, _ := blockLength(id)
			m.Place.At += length
			m.Blocks = append(m.Blocks, id)
		}
	}
	for _, e := range all {
		m.Layout.add(bodyRange{at[e.block] + e.at, e.length})
	}
}

// check returns an error if the extents do not have the size of the state.
func (u *upload) check(all []extent, size int64) error {
	kept := int64(0)
	for _, e := range all {
		kept += e.length
	}
	if kept != size {
		return fmt.Errorf("its blocks have %d of its %d bytes: this is a bug, and the last checkpoint stays", kept, size)
	}
	return nil
}
