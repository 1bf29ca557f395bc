package lab

import "slices"

// again is work that was done twice: bytes of a job's blob that second hashed
// after first.
type again struct {
	first, second span
	bytes         int64
}

// hashedAgain returns what was hashed more than once, each time against the
// last time before: bytes that were hashed three times come twice.
func hashedAgain(spans []span) []again {
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b span) int { return a.at.Compare(b.at) })
	var twice []again
	byJob := map[string][]span{} // disjoint: for every byte, who hashed it last
	for _, s := range spans {
		var kept []span
		for _, old := range byJob[s.job] {
			if n := overlap(old, s); n > 0 {
				twice = append(twice, again{first: old, second: s, bytes: n})
			}
			kept = append(kept, without(old, s)...)
		}
		byJob[s.job] = append(kept, s)
	}
	return twice
}

func overlap(a, b span) int64 {
	return max(min(a.end(), b.end())-max(a.offset, b.offset), 0)
}

// without returns what is left of a where b is not.
func without(a, b span) []span {
	if overlap(a, b) == 0 {
		return []span{a}
	}
	var rest []span
	if a.offset < b.offset {
		left := a
		left.bytes = b.offset - a.offset
		rest = append(rest, left)
	}
	if a.end() > b.end() {
		right := a
		right.offset, right.bytes = b.end(), a.end()-b.end()
		rest = append(rest, right)
	}
	return rest
}

func (s span) end() int64 { return s.offset + s.bytes }
