package lab

import "slices"

// hashedTwice returns, by VM, how many bytes it hashed that had to be hashed
// again later. Bytes that were hashed three times count for the first two.
func hashedTwice(spans []span) map[string]int64 {
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b span) int { return a.at.Compare(b.at) })
	twice := map[string]int64{}
	byJob := map[string][]span{} // disjoint: for every byte, who hashed it last
	for _, s := range spans {
		var kept []span
		for _, old := range byJob[s.job] {
			twice[old.vm] += overlap(old, s)
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
