package blocks

// movedPlaces is how many places of the base the moved pages of a group may come from.
const movedPlaces = 8

// compared is a range of a state that the base has from another offset on, or lacks if that is
// none.
type compared struct{ from, to, was int64 }

// compare compares a part of the state with the base. It looks for moved pages if many are
// not at the same offset, and uses them unless they are scattered.
func (p *patcher) compare(from, to int64) (all []compared, changed int64, moved bool) {
	all, changed = p.ranges(p.pages.same(from, to, false), from, to)
	if changed*patchShare <= to-from {
		return all, changed, false
	}
	others, rest := p.ranges(p.pages.same(from, to, true), from, to)
	places, last := 0, int64(0)
	for _, r := range others {
		if shift := r.from - r.was; r.was != none && shift != last {
			places, last = places+1, shift
		}
	}
	if places > movedPlaces {
		return all, changed, false
	}
	return others, rest, true
}

// ranges joins pages to ranges, and returns how many bytes have changed.
func (p *patcher) ranges(pages []int64, from, to int64) (all []compared, changed int64) {
	for i, page := range pages {
		low, high := p.pages.bounds(i, from, to)
		was := int64(none)
		if page != none {
			was = page*p.pages.page + low%p.pages.page
		} else {
			changed += high - low
		}
		if n := len(all) - 1; n >= 0 && (all[n].was == none) == (was == none) && (was == none || all[n].was+low-all[n].from == was) {
			all[n].to = high
			continue
		}
		all = append(all, compared{low, high, was})
	}
	return all, changed
}

// count returns how many ranges a group has in the layout.
func (p *patcher) count(all []compared) (ranges int) {
	for _, r := range all {
		if ranges++; r.was != none {
			ranges += len(p.base.slice(r.was, r.was+r.to-r.from)) - 1
		}
	}
	return ranges
}
