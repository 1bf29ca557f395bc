package protocol

import (
	"io"
	"sort"
)

// Range is a range of a blob's bytes. Count is -1 for "to the end".
type Range struct {
	Offset, Count int64
}

// Content is a run of bytes in pieces, such as the blocks of a blob. It never changes.
type Content struct {
	pieces [][]byte
	ends   []int64 // ends[i] is the offset just past pieces[i]
}

// NewContent joins pieces, which must no longer change.
func NewContent(pieces ...[]byte) Content {
	c := Content{pieces: pieces, ends: make([]int64, len(pieces))}
	var end int64
	for i, p := range pieces {
		end += int64(len(p))
		c.ends[i] = end
	}
	return c
}

// Size returns how many bytes there are.
func (c Content) Size() int64 {
	if len(c.ends) == 0 {
		return 0
	}
	return c.ends[len(c.ends)-1]
}

// Read returns a reader of a range that lies within the content. It copies
// nothing and finds its place in O(log n).
func (c Content) Read(at Range) *Reader {
	first := sort.Search(len(c.ends), func(i int) bool { return c.ends[i] > at.Offset })
	skip := at.Offset
	if first > 0 {
		skip -= c.ends[first-1]
	}
	return &Reader{pieces: c.pieces[first:], skip: skip, left: at.Count}
}

// Reader reads a run of bytes out of pieces.
type Reader struct {
	pieces [][]byte
	skip   int64 // bytes of pieces[0] that were read already
	left   int64
}

// next returns the rest of the current piece, as far as the reader goes.
func (r *Reader) next() []byte {
	for r.left > 0 {
		data := r.pieces[0][r.skip:]
		if len(data) > 0 {
			return data[:min(int64(len(data)), r.left)]
		}
		r.pieces, r.skip = r.pieces[1:], 0
	}
	return nil
}

func (r *Reader) advance(n int) {
	r.skip += int64(n)
	r.left -= int64(n)
}

// WriteTo implements io.WriterTo: the pieces go out as they lie in memory.
func (r *Reader) WriteTo(w io.Writer) (int64, error) {
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
