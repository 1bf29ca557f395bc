package storage

import (
	"io"
	"sort"
)

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
