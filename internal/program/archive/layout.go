package archive

import "hash/fnv"

// binEnd is how full a bin is before a name may end it, in bytes.
const binEnd = chunk / 4 * 3

// layout sets the offsets of files in a stream: first the offsets of all rests, then of
// all whole chunks, each in the order of paths. So the same list of files always gets the
// same offsets, and nothing has to be remembered of the files before.
type layout struct {
	rest     int64 // where the next rest may begin
	restsEnd int64 // the end of the last one
	body     int64 // where the next whole chunks begin
}

// newLayout returns the layout of a stream whose index ends there. restsEnd is 0 as long
// as it is unknown; then no body can be placed.
func newLayout(indexEnd, restsEnd int64) layout {
	return layout{rest: indexEnd, restsEnd: indexEnd, body: nextChunk(restsEnd)}
}

// placeRest sets where the entry's rest begins.
func (l *layout) placeRest(e *entry) {
	n := e.restSize()
	if n == 0 {
		return
	}
	if into := l.rest % chunk; into+n > chunk {
		l.rest = nextChunk(l.rest)
	}
	e.rest = l.rest
	l.rest += n
	l.restsEnd = l.rest
	if l.rest%chunk >= binEnd && endsBin(e.path) {
		l.rest = nextChunk(l.rest)
	}
}

// placeBody sets where the entry's whole chunks begin.
func (l *layout) placeBody(e *entry) {
	if n := e.bodySize(); n > 0 {
		e.body = l.body
		l.body += n
	}
}

// endsBin reports whether a name ends a bin that is full enough: one in four does.
func endsBin(name string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // a hash never returns an error
	return h.Sum32()%4 == 0
}

// nextChunk returns the first chunk's border that is not before at.
func nextChunk(at int64) int64 { return (at + chunk - 1) / chunk * chunk }
