// Package chunks cuts a stream of bytes into chunks at places that its content
// determines. So an insertion changes the chunks around it and moves all others, which
// a store that names chunks after their content has already.
//
// # The cut
//
// A chunk ends where the gear hash of the last 64 bytes is below a mark, as in FastCDC
// (Xia et al., USENIX ATC 2016), but not before its least size and at the latest at its
// most. Sizes depend on where in the stream a chunk begins, so that neither the length of
// the stream need be known nor 32 GiB have more than the 50,000 blocks of a blob:
//
//	chunks that begin below   least     average   most      at most
//	 1 GiB                    128 KiB   252 KiB   512 KiB    8,192 chunks
//	 8 GiB                    512 KiB  1008 KiB     2 MiB   14,336
//	32 GiB                      1 MiB     2 MiB     4 MiB   24,576
//
// # Groups
//
// One end in two, where the hash is below half of the mark, also ends a group, which has
// at least 512 KiB then, some 930 KiB on average in the first GiB, and 2 MiB at most.
// Behind that each chunk is a group. A group of new chunks can be sent as one block, so
// that a stream that is new or rewritten costs a quarter of the calls.
//
// # Versions
//
// Another version may cut differently, at the price of sending everything again: a saved
// state is read without knowing its cuts.
//
// # No library
//
// restic/chunker is too slow, jotfs/fastcdc-go has no recent version, and
// PlakarKorp/go-cdc-chunkers has one size for each stream and no groups.
package chunks

import (
	"crypto/sha256"
	"encoding/binary"
)

// MaxBlock is the largest chunk and the largest group, in bytes.
const MaxBlock = 4 << 20

// maxGroup is the largest group of several chunks, in bytes, with sizes that are not scaled.
const maxGroup = 2 << 20

// window is how many bytes a gear hash covers: each shifts it by one of its 64 bits.
const window = 64

// size bounds the chunks that begin before an offset.
type size struct {
	before      int64
	least, most int
	mark        uint64 // a hash below it ends a chunk
}

// sizes returns the sizes of a stream in ascending order: the table's if scale is 1 MiB.
// Behind its least size a chunk ends at each byte with a probability of 1 to that size.
func sizes(scale int) []size {
	bounded := func(times int64, least int) size {
		return size{before: times * int64(scale), least: least, most: 4 * least, mark: 1 << 32 / uint64(least) << 32}
	}
	return []size{bounded(1<<10, scale/8), bounded(8<<10, scale/2), bounded(32<<10, scale)}
}

// Cutter cuts one stream.
type Cutter struct {
	sizes    []size // of the current chunk, and of those behind it
	maxGroup int
	offset   int64  // of the next byte
	chunk    int    // bytes of the current chunk so far
	group    int    // bytes of the current group before that chunk
	hash     uint64 // of the last bytes, once they may end the chunk
}

// New returns a cutter of a stream's content.
func New() *Cutter { return Scaled(1 << 20) }

// Scaled returns a cutter like [New] with all sizes in proportion to scale instead of 1
// MiB. Tests use it to get many chunks of little content.
func Scaled(scale int) *Cutter {
	return &Cutter{sizes: sizes(scale), maxGroup: maxGroup / (1 << 20) * scale}
}

// Fixed returns a cutter of chunks of one length, each a group of its own.
func Fixed(length int) *Cutter {
	return &Cutter{sizes: []size{{least: length, most: length}}, maxGroup: length}
}

// End says what ends at a place in the stream.
type End int

// The ends. The end of a group also ends a chunk.
const (
	None End = iota
	Chunk
	Group
)

// Next continues the stream with data and returns how many bytes of it belong to the
// current chunk, and what ends behind them. It is None only if all of data belongs to
// the chunk. Wherever the stream ends, its last chunk and group end too.
func (c *Cutter) Next(data []byte) (n int, end End) {
	s := c.sizes[0]
	most := min(len(data), s.most-c.chunk)
	n = min(most, max(0, s.least-window-c.chunk)) // too early for an end to depend on
	for hashed := min(most, max(n, s.least-1-c.chunk)); n < hashed; n++ {
		c.hash = c.hash<<1 + gear[data[n]]
	}
	scanned, hash, found := scan(data[n:most], c.hash, s.mark)
	n += scanned
	c.hash = hash
	c.chunk += n
	c.offset += int64(n)
	if !found && c.chunk < s.most {
		return n, None
	}
	return n, c.endChunk(found && hash < s.mark/2 && c.group+c.chunk >= c.maxGroup/4)
}

// Skip ends the current chunk and group, and continues the stream behind that many bytes.
func (c *Cutter) Skip(bytes int64) {
	c.offset += bytes
	c.chunk, c.hash, c.group = 0, 0, 0
	c.resize()
}

// scan hashes data up to the byte behind which the hash is below the mark, if there is
// one. It goes by two bytes, which is faster since neither sum waits for the other. The
// race detector skips the loop, since a check of each byte takes most of the time of tests
// with large states; it checks the same bytes where they are hashed and sent.
//
//go:norace
func scan(data []byte, hash, mark uint64) (n int, after uint64, found bool) {
	for ; n+1 < len(data); n += 2 {
		a, b := gear[data[n]], gear[data[n+1]]
		first := hash<<1 + a
		if first < mark {
			return n + 1, first, true
		}
		if hash = hash<<2 + (a<<1 + b); hash < mark {
			return n + 2, hash, true
		}
	}
	if n < len(data) {
		hash = hash<<1 + gear[data[n]]
		n++
		found = hash < mark
	}
	return n, hash, found
}

// endChunk begins the next chunk, and a group if asked to or if the current one might
// not hold that chunk.
func (c *Cutter) endChunk(endsGroup bool) End {
	c.group += c.chunk
	c.chunk, c.hash = 0, 0
	c.resize()
	if !endsGroup && c.group+c.sizes[0].most <= c.maxGroup {
		return Chunk
	}
	c.group = 0
	return Group
}

// resize chooses the sizes of chunks that begin at the current offset.
func (c *Cutter) resize() {
	for len(c.sizes) > 1 && c.offset >= c.sizes[0].before {
		c.sizes = c.sizes[1:]
	}
}

// gear has a random number for each byte, the same in every process.
var gear = func() (table [256]uint64) {
	for i := range table {
		sum := sha256.Sum256([]byte{'g', 'e', 'a', 'r', byte(i)})
		table[i] = binary.BigEndian.Uint64(sum[:])
	}
	return table
}()
