package protocol

import (
	"iter"
	"slices"
	"sort"
)

// chunkSize is the most names in one chunk of a nameIndex.
const chunkSize = 512

// NameIndex is a sorted set of names: sorted chunks of at most chunkSize names
// in sorted order. Adding, removing and seeking cost O(log n) and the move of
// one chunk; a chunk that overflows is split, which moves n/chunkSize slice
// headers. The zero value is empty.
type NameIndex struct {
	chunks [][]string
}

// chunk returns the position of the only chunk that may hold name.
func (x *NameIndex) chunk(name string) int {
	after := sort.Search(len(x.chunks), func(i int) bool { return x.chunks[i][0] > name })
	return max(after-1, 0)
}

// Add adds a name.
func (x *NameIndex) Add(name string) {
	if len(x.chunks) == 0 {
		x.chunks = [][]string{{name}}
		return
	}
	c := x.chunk(name)
	i, found := slices.BinarySearch(x.chunks[c], name)
	if found {
		return
	}
	x.chunks[c] = slices.Insert(x.chunks[c], i, name)
	if full := x.chunks[c]; len(full) > chunkSize {
		half := len(full) / 2
		x.chunks[c] = slices.Clone(full[:half])
		x.chunks = slices.Insert(x.chunks, c+1, slices.Clone(full[half:]))
	}
}

// Remove removes a name.
func (x *NameIndex) Remove(name string) {
	if len(x.chunks) == 0 {
		return
	}
	c := x.chunk(name)
	i, found := slices.BinarySearch(x.chunks[c], name)
	if !found {
		return
	}
	x.chunks[c] = slices.Delete(x.chunks[c], i, i+1)
	if len(x.chunks[c]) == 0 {
		x.chunks = slices.Delete(x.chunks, c, c+1)
	}
}

// From iterates over the names that are not less than start, in order. The set
// must not change during the iteration.
func (x *NameIndex) From(start string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if len(x.chunks) == 0 {
			return
		}
		c := x.chunk(start)
		i, _ := slices.BinarySearch(x.chunks[c], start)
		for ; c < len(x.chunks); c, i = c+1, 0 {
			for _, name := range x.chunks[c][i:] {
				if !yield(name) {
					return
				}
			}
		}
	}
}
