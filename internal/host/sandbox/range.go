package sandbox

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// leastID is the smallest user id of a range. Lower ones belong to the system and
// to people.
const leastID = 10_000

// mostID is the largest. The ids of nobody (65534) and of the 16-bit overflow
// (65535) lie below it and are refused.
const mostID = 1<<31 - 1

// Range is a range of user ids, both ends included. The zero value is none.
type Range struct{ First, Last uint32 }

// IsZero reports whether there is no range.
func (r Range) IsZero() bool { return r == Range{} }

func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// ParseRange reads FIRST-LAST. The empty text and "none" are the zero range.
func ParseRange(text string) (Range, error) {
	if text == "" || text == "none" {
		return Range{}, nil
	}
	first, last, ok := strings.Cut(text, "-")
	from, err1 := strconv.ParseUint(first, 10, 32)
	to, err2 := strconv.ParseUint(last, 10, 32)
	switch {
	case !ok || errors.Join(err1, err2) != nil:
		return Range{}, fmt.Errorf("%.40q is no range of user ids: give FIRST-LAST such as 60578-61183, or none", text)
	case from > to:
		return Range{}, fmt.Errorf("range of user ids %d-%d ends before it begins", from, to)
	case from < leastID || to > mostID:
		return Range{}, fmt.Errorf("user ids %d-%d: give ids from %d to %d, which no person and no service has", from, to, leastID,
			uint32(mostID))
	case from <= 65535 && to >= 65534:
		return Range{}, fmt.Errorf("user ids %d-%d include 65534 (nobody) or 65535 (invalid)", from, to)
	}
	return Range{uint32(from), uint32(to)}, nil
}

// part divides r into equal parts and returns part number n.
func (r Range) part(n, parts int) Range {
	size := (r.Last - r.First + 1) / uint32(parts)
	first := r.First + uint32(n)*size
	return Range{first, first + size - 1}
}

func (r Range) size() int { return int(r.Last-r.First) + 1 }
