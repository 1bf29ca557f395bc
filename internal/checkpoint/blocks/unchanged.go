package blocks

import "slices"

// Base is an earlier state that the blob has, and from which an upload takes what is unchanged.
// The zero value has nothing.
type Base struct {
	Manifest

	// Spans are the ranges of the new state that the base has too, as far as the state can
	// tell without reading them, in ascending order.
	Spans []Span

	// Skip passes over bytes of the state without reading them. If it is nil, the state is read
	// in full, and the spans are compared with the base.
	Skip func(bytes int64) error
}

// Span is a range of a state with the same bytes as a range of an earlier one.
type Span struct{ At, Was, Length int64 }

// UnitHash is the hash of one unit of a state.
type UnitHash struct {
	Sum Sum

	// Confirmed means that the unit was in the span of a base, was read, and had the hash that
	// the base has. Only such units are skipped in later uploads.
	Confirmed bool
}

// gap is a range of a state that is not read: it begins and ends where blocks of the base do.
type gap struct {
	at, length int64
	blocks     []string
	extents    []extent // instead of blocks, of a base with a layout
}

// inUnits returns the part of a span that consists of whole units of both states: the first
// unit of the new state, the first of the base, and their number.
func (b *Base) inUnits(s Span, unit int64) (first, was, number int64) {
	if (s.At-s.Was)%unit != 0 {
		return 0, 0, 0
	}
	first = (s.At + unit - 1) / unit
	was = first - (s.At-s.Was)/unit
	return first, was, max(0, min((s.At+s.Length)/unit-first, b.Size/unit-was))
}

// same maps the units of the new state to the units of the base that are the same.
func (b *Base) same(unit int64) map[int64]int64 {
	units := map[int64]int64{}
	for _, span := range b.Spans {
		first, was, number := b.inUnits(span, unit)
		for i := range number {
			units[first+i] = was + i
		}
	}
	return units
}

// gaps returns the ranges of the new state from an offset on that need not be read, in
// ascending order. Blocks and units end in different places. So a gap has whole blocks, and
// all units that it touches are the same as confirmed units of the base: their hashes are
// known, although the unit at each end is read in part.
//
// In a base with a layout a gap may begin and end anywhere: with kept, its extents are the gap.
func (b *Base) gaps(unit, from int64, has func(id string) bool, kept *places) (all []gap) {
	if b.Skip == nil {
		return nil
	}
	starts := make([]int64, 1, len(b.Blocks)+1) // of the blocks of the base, and its end
	for _, id := range b.Blocks {
		starts = append(starts, starts[len(starts)-1]+lengthOf([]string{id}))
	}
	for _, span := range b.Spans {
		first, was, number := b.inUnits(span, unit)
		shift := (first - was) * unit
		for begin := was; begin < was+number; begin++ {
			end := begin
			for end < was+number && b.Units[end].Confirmed {
				end++
			}
			low, high := max(begin*unit, from-shift), end*unit
			if b.Layout.ranges == nil {
				all = b.appendGap(all, starts, low, high, shift, has)
			} else if low < high {
				all = append(all, gap{at: low + shift, length: high - low, extents: kept.slice(low, high)})
			}
			begin = end
		}
	}
	return all
}

// appendGap adds the gap of the blocks of the base between two of its offsets, unless the blob
// lacks one of them.
func (b *Base) appendGap(all []gap, starts []int64, low, high, shift int64, has func(id string) bool) []gap {
	from, _ := slices.BinarySearch(starts, low)
	to, exact := slices.BinarySearch(starts, high)
	if !exact {
		to--
	}
	if from >= to {
		return all
	}
	for _, id := range b.Blocks[from:to] {
		if !has(id) {
			return all
		}
	}
	return append(all, gap{at: starts[from] + shift, length: starts[to] - starts[from], blocks: b.Blocks[from:to]})
}

// group returns the group of a gap, whose blocks the blob has.
func (g *gap) group() *group {
	decided := make(chan struct{})
	close(decided)
	return &group{blocks: g.blocks, extents: g.extents, decided: decided}
}
