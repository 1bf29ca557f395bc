package archive

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// maxRanges is how many ranges of data a file with holes may have. If there are more, the
// smallest holes are stored as zeros.
const maxRanges = 1000

// leastHole is the shortest hole that is left out, in bytes.
const leastHole = 64 << 10

// ranges are where a file with holes has data.
type ranges struct {
	size int64 // of the file
	all  []span
}

// span is a part of a file.
type span struct{ from, size int64 }

// newRanges returns the ranges of a file with data in these spans, or nil if it has no hole.
// A hole at the end is followed by an empty range.
func newRanges(size int64, data []span) *ranges {
	r := &ranges{size: size, all: merged(data)}
	if r.data() == size {
		return nil
	}
	if last := len(r.all) - 1; last < 0 || r.all[last].from+r.all[last].size < size {
		r.all = append(r.all, span{size, 0})
	}
	return r
}

// data is the number of bytes that are not in holes.
func (r *ranges) data() (n int64) {
	for _, s := range r.all {
		n += s.size
	}
	return n
}

// merged returns spans with no hole between them that is shorter than leastHole, and at
// most maxRanges.
func merged(all []span) []span {
	for least := int64(leastHole); ; least *= 2 {
		var out []span
		for _, s := range all {
			if last := len(out) - 1; last >= 0 && s.from-(out[last].from+out[last].size) < least {
				out[last].size = s.from + s.size - out[last].from
				continue
			}
			out = append(out, s)
		}
		if len(out) <= maxRanges {
			return out
		}
	}
}

// String returns the map of a sparse file: offset and length of each range. It is empty for nil.
func (r *ranges) String() string {
	if r == nil {
		return ""
	}
	var text []byte
	for _, s := range r.all {
		text = strconv.AppendInt(text, s.from, 10)
		text = append(text, ',')
		text = strconv.AppendInt(text, s.size, 10)
		text = append(text, ',')
	}
	return strings.TrimSuffix(string(text), ",")
}

// parseRanges returns the ranges of a map that package tar has validated: they are in order
// and in the file.
func parseRanges(size int64, text string) (*ranges, error) {
	numbers := strings.Split(text, ",")
	if len(numbers) > 2*(maxRanges+1) {
		return nil, fmt.Errorf("%w: a file with holes has more than %d ranges", ErrDamaged, maxRanges)
	}
	r := &ranges{size: size}
	for i := 0; i+1 < len(numbers); i += 2 {
		from, err1 := strconv.ParseInt(numbers[i], 10, 64)
		length, err2 := strconv.ParseInt(numbers[i+1], 10, 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%w: range %.40q of a file with holes", ErrDamaged, numbers[i])
		}
		r.all = append(r.all, span{from, length})
	}
	return r, nil
}

// place returns where a byte of the data is in the file, and how many follow in its range.
func (r *ranges) place(at int64) (offset, left int64) {
	for _, s := range r.all {
		if at < s.size {
			return s.from + at, s.size - at
		}
		at -= s.size
	}
	return 0, 0
}

// packed is a file with holes as if it had none. With no ranges it is the file.
type packed struct {
	file interface {
		io.ReaderAt
		io.WriterAt
	}
	ranges *ranges
}

// ReadAt implements [io.ReaderAt].
func (p packed) ReadAt(b []byte, at int64) (int, error) {
	return p.each(b, at, p.file.ReadAt, io.EOF)
}

// WriteAt implements [io.WriterAt].
func (p packed) WriteAt(b []byte, at int64) (int, error) {
	return p.each(b, at, p.file.WriteAt, io.ErrShortWrite)
}

func (p packed) each(b []byte, at int64, do func([]byte, int64) (int, error), end error) (done int, err error) {
	for done < len(b) && err == nil {
		offset, left := at+int64(done), int64(math.MaxInt64)
		if p.ranges != nil {
			if offset, left = p.ranges.place(offset); left == 0 {
				return done, end
			}
		}
		var n int
		n, err = do(b[done:done+int(min(int64(len(b)-done), left))], offset)
		done += n
	}
	return done, err
}
