package storage

import (
	"io"
	"sort"
	"sync"
	"time"
)

// container is one container and its blobs.
type container struct {
	mu       sync.RWMutex
	metadata map[string]string
	etag     string
	modified time.Time
	blobs    map[string]*blob
	names    nameIndex
}

// blob is a name in a container: a committed version, staged blocks, or both.
type blob struct {
	current *version // nil while blocks were staged but never committed
	staged  stagedBlocks
}

// version is one committed state of a blob. It never changes, so that a reader
// needs no lock once it has one; every write makes another.
type version struct {
	etag       string
	created    time.Time
	modified   time.Time
	metadata   map[string]string
	properties properties
	lease      lease
	content    content
	// fromBlocks says that the content's blocks are the blob's committed
	// block list. Put Blob leaves that list empty.
	fromBlocks bool
}

// properties are the standard HTTP headers that a blob keeps.
type properties struct {
	contentType, contentEncoding, contentLanguage, contentDisposition, cacheControl string
	contentMD5                                                                      string // base64
}

// stagedRetention is how long blocks that were staged but not committed are
// kept after the last of them ("Put Block" in the REST documentation).
const stagedRetention = 7 * 24 * time.Hour

// find returns the blob of that name, or nil. Blocks that were staged too long
// ago do not count. The container must be locked, at least for reading.
func (c *container) find(name string, now time.Time) *blob {
	b := c.blobs[name]
	if b != nil && b.current == nil && b.staged.expired(now) {
		return nil
	}
	return b
}

// committed returns the blob's current version, or nil where there is none.
func (c *container) committed(name string, now time.Time) *version {
	if b := c.find(name, now); b != nil {
		return b.current
	}
	return nil
}

// snapshot is committed for callers without the lock.
func (c *container) snapshot(name string, now time.Time) *version {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.committed(name, now)
}

// sweep drops blocks of a blob that were staged too long ago. The container
// must be locked for writing.
func (c *container) sweep(name string, now time.Time) {
	b := c.blobs[name]
	if b == nil || !b.staged.expired(now) {
		return
	}
	b.staged = stagedBlocks{}
	if b.current == nil {
		c.remove(name)
	}
}

// change returns the blob of that name for a write, made where there is none.
// The container must be locked for writing.
func (c *container) change(name string) *blob {
	b := c.blobs[name]
	if b == nil {
		b = &blob{}
		c.blobs[name] = b
		c.names.add(name)
	}
	return b
}

// remove deletes the blob and whatever is staged for it. The container must be
// locked for writing.
func (c *container) remove(name string) {
	delete(c.blobs, name)
	c.names.remove(name)
}

// block is a piece of a blob. Its bytes never change and are shared by all
// versions that have it.
type block struct {
	id   string // decoded; "" for the one piece of a Put Blob
	data []byte
}

// content is a blob's bytes: blocks one after another. It never changes.
type content struct {
	blocks []block
	ends   []int64 // ends[i] is the offset just past blocks[i]
}

func newContent(blocks []block) content {
	c := content{blocks: blocks, ends: make([]int64, len(blocks))}
	var end int64
	for i, b := range blocks {
		end += int64(len(b.data))
		c.ends[i] = end
	}
	return c
}

func (c content) size() int64 {
	if len(c.ends) == 0 {
		return 0
	}
	return c.ends[len(c.ends)-1]
}

// read returns a reader of a range that lies within the content. It copies
// nothing and finds its place in O(log n).
func (c content) read(at Range) *blobReader {
	first := sort.Search(len(c.ends), func(i int) bool { return c.ends[i] > at.Offset })
	skip := at.Offset
	if first > 0 {
		skip -= c.ends[first-1]
	}
	return &blobReader{blocks: c.blocks[first:], skip: skip, left: at.Count}
}

// blobReader reads a run of bytes out of blocks.
type blobReader struct {
	blocks []block
	skip   int64 // bytes of blocks[0] that were read already
	left   int64
}

// next returns the rest of the current block, as far as the reader goes.
func (r *blobReader) next() []byte {
	for r.left > 0 {
		data := r.blocks[0].data[r.skip:]
		if len(data) > 0 {
			return data[:min(int64(len(data)), r.left)]
		}
		r.blocks, r.skip = r.blocks[1:], 0
	}
	return nil
}

func (r *blobReader) advance(n int) {
	r.skip += int64(n)
	r.left -= int64(n)
}

// WriteTo implements io.WriterTo: the blocks go out as they lie in memory.
func (r *blobReader) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for data := r.next(); data != nil; data = r.next() {
		n, err := w.Write(data)
		r.advance(n)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
