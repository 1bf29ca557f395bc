package archive

import (
	"archive/tar"
	"hash/maphash"
	"path/filepath"
	"time"
)

// Sizes of the memory of a stream.
const (
	// leastCompared is the size from which on files are compared, in bytes. Smaller ones are
	// read as soon as they are looked at.
	leastCompared = 64 << 10

	// mostCompared is how many files and folders a checkpoint may have whose files are
	// compared, which bounds the memory for their places.
	mostCompared = 20_000
)

// piece is a part of a stream: a header, or the data of a file with the zeros behind it.
type piece struct {
	key  uint64 // tells the bytes from all others; 0 if that is not known
	at   int64
	size int64
}

// identity tells a file and its content from all others, as long as nothing lies: neither
// programs that write into a file and set its time back, nor writes through a mapping of the
// file that the file system has not noticed yet. The time of the last change of an inode would
// notice the former. But a hard link changes it too, and without links no file is in two
// checkpoints.
type identity struct {
	stamp stamp
	born  int64
	size  int64  // without holes
	holes string // where it has data; empty for a file without holes
}

// identity returns the identity of a file that was created at that time, by [bornAt]. ok is
// false for an entry that is not compared. A time of whole seconds was set by a program or
// comes from a file system with coarse times: two contents may have it.
func (e *entry) identity(born int64) (id identity, ok bool) {
	if e.kind != tar.TypeReg || born == 0 || e.stamp.inode == 0 || e.stamp.modified%int64(time.Second) == 0 {
		return identity{}, false
	}
	return identity{stamp: e.stamp, born: born, size: e.size, holes: e.holes.String()}, true
}

// add adds an entry to the stream.
func (x *Index) add(e *entry, header []byte) {
	if x.entries++; x.entries <= mostCompared {
		x.pieces = append(x.pieces, piece{key: maphash.Bytes(seed, header), at: x.size, size: int64(len(header))})
	} else {
		x.pieces = nil
	}
	x.size += int64(len(header))
	if size := e.size + e.padding(); e.size >= leastCompared && x.pieces != nil {
		if id, ok := e.identity(bornAt(filepath.Join(x.folder, filepath.FromSlash(e.path)), e.stamp)); ok {
			x.compared = true
			x.pieces = append(x.pieces, piece{key: maphash.Comparable(seed, id), at: x.size, size: size})
		}
	}
	x.size += e.size + e.padding()
}

// origin is where a stream has its pieces. The stream of a later folder that has some of the
// files, by the same names or by others, has the same bytes there.
type origin map[uint64]int64

// Origin identifies the content of the stream, for Unchanged of later streams. It is nil if the
// stream has nothing that can be compared.
func (r *reader) Origin() any {
	if r.index.pieces == nil || !r.index.compared {
		return nil
	}
	o := origin{}
	for _, p := range r.index.pieces {
		o[p.key] = p.at
	}
	return o
}

// Unchanged yields the ranges, in ascending order, that the stream with that origin has too.
func (r *reader) Unchanged(since any, yield func(at, was, length int64)) {
	before, ok := since.(origin)
	if !ok {
		return
	}
	var at, was, length int64 // of the range so far
	for _, p := range r.index.pieces {
		earlier, ok := before[p.key]
		switch {
		case !ok:
			continue
		case p.at == at+length && earlier == was+length:
			length += p.size
			continue
		case length > 0:
			yield(at, was, length)
		}
		at, was, length = p.at, earlier, p.size
	}
	if length > 0 {
		yield(at, was, length)
	}
}
