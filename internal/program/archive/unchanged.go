package archive

import (
	"errors"
	"io"
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

// origin is where a stream has the files of a folder. The stream of a later folder that has
// some of these files, by the same names or by others, has the same bytes there.
type origin struct{ files map[identity]placed }

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

// placed is where a file is in a stream.
type placed struct{ rest, body place }

// place is the offset of a rest or of whole chunks, and its number among these in the stream.
type place struct {
	at     int64
	number int
}

// identity returns the identity of an entry. ok is false for an entry that is not compared. A time of
// whole seconds was set by a program or comes from a file system with coarse times: two contents
// may have it.
func (e *entry) identity() (id identity, ok bool) {
	if !e.isFile() || e.born == 0 || e.stamp.inode == 0 || e.stamp.modified%int64(time.Second) == 0 {
		return identity{}, false
	}
	id = identity{stamp: e.stamp, born: e.born, size: e.size}
	if e.holes != nil {
		id.holes = e.holes.String()
	}
	return id, true
}

// eachPlaced calls do for the files that are compared, with their places in the stream.
func (x *Index) eachPlaced(do func(identity, placed)) error {
	l := x.layout()
	var now placed
	return x.list.each(func(e *entry) error {
		l.placeRest(e)
		l.placeBody(e)
		now.rest.at, now.body.at = e.rest, e.body
		if id, ok := e.identity(); ok {
			do(id, now)
		}
		if e.restSize() > 0 {
			now.rest.number++
		}
		if e.bodySize() > 0 {
			now.body.number++
		}
		return nil
	})
}

// Origin identifies the content of the stream, for Unchanged of later streams. It is nil if the
// stream has nothing that can be compared.
func (r *reader) Origin() any {
	if r.index.entries > mostCompared {
		return nil
	}
	o := &origin{files: map[identity]placed{}}
	err := r.index.eachPlaced(func(id identity, at placed) { o.files[id] = at })
	if err != nil || len(o.files) == 0 {
		return nil
	}
	return o
}

// run is a growing range that another stream has at another offset.
type run struct {
	at, was, end    int64
	number, earlier int // of its last piece, in each stream
}

// add extends the run by a piece. It returns the run before if the piece does not continue
// it. Between two pieces that follow each other in both streams are only zeros.
func (r *run) add(at, was place, length int64) (ended *run) {
	if r.end > 0 && at.number == r.number+1 && was.number == r.earlier+1 && at.at-r.at == was.at-r.was {
		r.end, r.number, r.earlier = at.at+length, at.number, was.number
		return nil
	}
	before := *r
	*r = run{at: at.at, was: was.at, end: at.at + length, number: at.number, earlier: was.number}
	return &before
}

func (r *run) yield(to func(at, was, length int64)) {
	if r != nil && r.end > 0 {
		to(r.at, r.was, r.end-r.at)
	}
}

// Unchanged yields the ranges, in ascending order, that the stream with that origin has too.
func (r *reader) Unchanged(since any, yield func(at, was, length int64)) {
	before, ok := since.(*origin)
	if !ok {
		return
	}
	var rests, bodies run
	var later []run // of whole chunks, which are behind all rests
	err := r.index.eachPlaced(func(id identity, now placed) {
		was, ok := before.files[id]
		if !ok {
			return
		}
		if n := id.size % chunk; n > 0 {
			rests.add(now.rest, was.rest, n).yield(yield)
		}
		if n := id.size - id.size%chunk; n > 0 {
			if ended := bodies.add(now.body, was.body, n); ended != nil {
				later = append(later, *ended)
			}
		}
	})
	if err != nil {
		return
	}
	rests.yield(yield)
	for _, ended := range append(later, bodies) {
		ended.yield(yield)
	}
}

// Skip passes over bytes of files without reading them. At its end the stream finds out
// whether one of the files has changed since the scan, as for bytes that were read.
func (r *reader) Skip(bytes int64) error {
	for bytes > 0 && r.err == nil {
		if r.left == 0 {
			r.err = r.next()
			continue
		}
		n := min(bytes, r.left)
		r.left -= n
		r.at += n
		bytes -= n
		if r.piece != nil { // it is opened again where it is read again
			r.part = nil
			r.err = r.closeFile()
		}
	}
	if errors.Is(r.err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return r.err
}
