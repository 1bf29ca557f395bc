package archive

import "hash/fnv"

// binEnd is how full a bin is before a name may end it, in bytes.
const binEnd = chunk / 4 * 3

// place sets the offsets of every file in the stream, behind a header and index of that
// length, and returns the stream's length.
func place(entries []entry, indexEnd int64) int64 {
	at, end := indexEnd, indexEnd
	for i := range entries {
		e := &entries[i]
		n := e.restSize()
		if n == 0 {
			continue
		}
		if into := at % chunk; into+n > chunk {
			at = nextChunk(at)
		}
		e.rest = at
		at += n
		end = at
		if at%chunk >= binEnd && endsBin(e.path) {
			at = nextChunk(at)
		}
	}
	for i := range entries {
		e := &entries[i]
		if n := e.bodySize(); n > 0 {
			e.body = nextChunk(end)
			end = e.body + n
		}
	}
	return end
}

// endsBin reports whether a name ends a bin that is full enough: one in four does.
func endsBin(name string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // a hash never returns an error
	return h.Sum32()%4 == 0
}

// nextChunk returns the first chunk's border that is not before at.
func nextChunk(at int64) int64 { return (at + chunk - 1) / chunk * chunk }

// piece is a run of a file's bytes and its place in the stream.
type piece struct {
	entry *entry
	at    int64 // in the stream
	from  int64 // in the file
	size  int64
}

// pieces goes through the pieces of all files: first the rests, then the whole chunks,
// which is their order in a stream that [place] has laid out.
type pieces struct {
	entries []entry
	at      int
	bodies  bool // the rests are through
}

func (p *pieces) next() (next piece, ok bool) {
	for {
		if p.at == len(p.entries) {
			if p.bodies {
				return piece{}, false
			}
			p.at, p.bodies = 0, true
			continue
		}
		e := &p.entries[p.at]
		p.at++
		switch {
		case !p.bodies && e.restSize() > 0:
			return piece{entry: e, at: e.rest, from: e.bodySize(), size: e.restSize()}, true
		case p.bodies && e.bodySize() > 0:
			return piece{entry: e, at: e.body, size: e.bodySize()}, true
		}
	}
}
