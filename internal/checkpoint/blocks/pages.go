package blocks

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"
)

// Page is the length of the pages in which a state is compared with its base, in bytes.
const Page = 4 << 10

// maxPages is how many pages of a state have a sum: 4 GiB, whose sums have 16 MiB. The rest of a
// state is sent in whole blocks.
const maxPages = 1 << 20

// PageSum is the XXH3 of 128 bits of one page. Its seed is the one of the names of blocks, so
// that a collision is found as damage: the hash of the state has another seed.
type PageSum [16]byte

// Pages are the sums of the pages of a state in order; the last page may be shorter. The zero
// value of a sum stands for an unknown page.
type Pages []PageSum

// AddPages appends the sums of the pages of data.
func (k Key) AddPages(sums Pages, data []byte, page int) Pages {
	for ; page > 0 && len(data) > 0 && len(sums) < maxPages; data = data[min(page, len(data)):] {
		sums = append(sums, xxh3.Hash128Seed(data[:min(page, len(data))], k.names()).Bytes())
	}
	return sums
}

// With returns the sums with those of the pages behind them, as far as sums are kept.
func (p Pages) With(more Pages) Pages { return append(p, more[:min(len(more), maxPages-len(p))]...) }

// pager computes the sums of the pages of a state one after another, while others wait for them.
type pager struct {
	page int64 // bytes; 0 for no sums
	key  Key
	base Pages

	indexing sync.Once
	index    pageIndex // of the base, once a group has moved

	at      int64        // bytes written and skipped
	current *xxh3.Hasher // of the written part of the current page
	skipped bool         // a part of the current page was skipped

	mu    sync.Mutex
	more  sync.Cond // sums were added, or the state has ended
	sums  Pages
	ended bool
}

func newPager(page int, key Key, base Pages) *pager {
	p := &pager{page: int64(page), key: key, base: base}
	if p.page > 0 {
		p.current = xxh3.NewSeed(key.names())
	}
	if p.more.L = &p.mu; p.page > 0 {
		p.sums = make(Pages, 0, min(len(base)+1, maxPages))
	}
	return p
}

// write continues the state with data.
func (p *pager) write(data []byte) {
	if p.page == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(data) > 0 && len(p.sums) < maxPages {
		if whole := int64(len(data)) / p.page * p.page; whole > 0 && p.at%p.page == 0 {
			p.sums = p.key.AddPages(p.sums, data[:whole], int(p.page))
			p.at, data = p.at+whole, data[whole:]
			continue
		}
		n := min(int64(len(data)), p.page-p.at%p.page)
		_, _ = p.current.Write(data[:n]) // a hash never returns an error
		data = data[n:]
		p.advance(n)
	}
	p.more.Broadcast()
}

// skip continues the state with bytes that are not read. Their pages are unknown: only the last
// save of a claim skips bytes, and none is compared with it.
func (p *pager) skip(bytes int64) {
	if p.page == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for bytes > 0 && len(p.sums) < maxPages {
		if whole := min(bytes/p.page, int64(maxPages-len(p.sums))); whole > 0 && p.at%p.page == 0 {
			p.sums = append(p.sums, make(Pages, whole)...)
			p.at, bytes = p.at+whole*p.page, bytes-whole*p.page
			continue
		}
		n := min(bytes, p.page-p.at%p.page)
		p.skipped = true
		bytes -= n
		p.advance(n)
	}
	p.more.Broadcast()
}

// advance ends the current page if its bytes are complete.
func (p *pager) advance(bytes int64) {
	if p.at += bytes; p.at%p.page == 0 {
		p.end()
	}
}

func (p *pager) end() {
	var sum PageSum
	if !p.skipped {
		sum = p.current.Sum128().Bytes()
	}
	p.sums = append(p.sums, sum)
	p.current.Reset()
	p.skipped = false
}

// close ends the last page, which may be shorter.
func (p *pager) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.page > 0 && p.at%p.page > 0 && len(p.sums) < maxPages {
		p.end()
	}
	p.ended = true
	p.more.Broadcast()
}

// wait waits for the sums of the pages between two offsets. mu is locked.
func (p *pager) wait(from, to int64) (first, last int64) {
	first, last = from/p.page, (to-1)/p.page
	for int64(len(p.sums)) <= last && len(p.sums) < maxPages && !p.ended {
		p.more.Wait()
	}
	return first, last
}

// same waits for the sums of the pages between two offsets, and returns for each the number of
// the same page of the base, or none. Without moved only pages at the same offset are compared.
// With moved a page may come from any place: where a program gets memory, or a file grows, all
// later pages of the state move.
func (p *pager) same(from, to int64, moved bool) []int64 {
	if moved {
		p.indexing.Do(func() { p.index = newPageIndex(p.base) })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	first, last := p.wait(from, to)
	all, shift := make([]int64, last-first+1), int64(0)
	for i := range all {
		n := first + int64(i)
		switch all[i] = none; {
		case p.isAt(n, n+shift):
			all[i] = n + shift
		case moved && n < int64(len(p.sums)):
			if was := p.index.find(p.sums[n]); was != none {
				all[i], shift = was, was-n
			}
		}
	}
	return all
}

// none is the number of a page that the base lacks.
const none = -1

// isAt reports whether page n of the state is the page of the base with that number.
func (p *pager) isAt(n, was int64) bool {
	return n < int64(len(p.sums)) && was >= 0 && was < int64(len(p.base)) && p.sums[n] == p.base[was] && p.sums[n] != PageSum{}
}

// pageIndex finds pages by their sums. It has the numbers of the pages in buckets by the first
// bits of their sums, which are as good as random: 1.5 MiB at most for a state of 1 GiB. It is
// made in linear time, since a stop waits for it.
type pageIndex struct {
	sums   Pages
	shift  int      // a sum's first 32 bits, shifted right by it, are the number of its bucket
	starts []uint32 // of the buckets in pages, and the end of the last one
	pages  []uint32 // ascending in each bucket
}

func newPageIndex(sums Pages) pageIndex {
	width := bits.Len(uint(len(sums) / 4)) // of the number of a bucket, which has about four pages
	x := pageIndex{sums: sums, shift: 32 - width, starts: make([]uint32, 1<<width+1), pages: make([]uint32, len(sums))}
	for _, sum := range sums {
		x.starts[x.bucket(sum)]++
	}
	end := uint32(0)
	for i := range x.starts {
		end += x.starts[i]
		x.starts[i] = end
	}
	for n, sum := range slices.Backward(sums) { // which turns the ends into starts
		b := x.bucket(sum)
		x.starts[b]--
		x.pages[x.starts[b]] = uint32(n) // at most maxPages
	}
	return x
}

func (x *pageIndex) bucket(sum PageSum) uint32 { return binary.BigEndian.Uint32(sum[:]) >> x.shift }

// find returns the number of the first page with that sum, or none. The sum of an unknown page
// is no page's.
func (x *pageIndex) find(sum PageSum) int64 {
	b := x.bucket(sum)
	for _, n := range x.pages[x.starts[b]:x.starts[b+1]] {
		if x.sums[n] == sum && sum != (PageSum{}) {
			return int64(n)
		}
	}
	return none
}

// bounds returns the part of a group that is in its page number i, in the state.
func (p *pager) bounds(i int, from, to int64) (low, high int64) {
	first := from/p.page + int64(i)
	return max(from, first*p.page), min(to, (first+1)*p.page)
}
