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

// String returns the text behind a path in the index: the size, and offset and length of
// each range.
func (r *ranges) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, " %0*x", digits, r.size)
	for _, s := range r.all {
		fmt.Fprintf(&text, " %0*x+%0*x", digits, s.from, digits, s.size)
	}
	return text.String()
}

func decodeRanges(text string) (*ranges, error) {
	fields := strings.Fields(text)
	if len(fields) == 0 || len(fields) > 1+maxRanges {
		return nil, strconv.ErrSyntax
	}
	size, err := decodeNumber([]byte(fields[0]))
	if err != nil {
		return nil, err
	}
	r := &ranges{size: size}
	at := int64(0)
	for _, field := range fields[1:] {
		from, length, ok := strings.Cut(field, "+")
		if !ok || len(from) != digits || len(length) != digits {
			return nil, strconv.ErrSyntax
		}
		var s span
		if s.from, err = decodeNumber([]byte(from)); err == nil {
			s.size, err = decodeNumber([]byte(length))
		}
		if err != nil || s.from < at || s.size == 0 || s.size > size-s.from {
			return nil, fmt.Errorf("%w: range %s", ErrDamaged, field)
		}
		at = s.from + s.size
		r.all = append(r.all, s)
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
