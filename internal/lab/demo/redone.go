package demo

import (
	"slices"
	"time"
)

// redoneWork is work that was done twice: bytes of a job's blob that second
// hashed after first.
type redoneWork struct {
	first, second hashedRange
	bytes         int64
}

// hashedAgain returns the ranges that were hashed more than once, each time compared with
// the time before: bytes that were hashed three times come twice.
func hashedAgain(ranges []hashedRange) []redoneWork {
	ranges = slices.SortedStableFunc(slices.Values(ranges), func(a, b hashedRange) int { return a.at.Compare(b.at) })
	var redone []redoneWork
	byJob := map[string][]hashedRange{} // disjoint: for every byte, the last time
	for _, r := range ranges {
		var rest []hashedRange
		for _, old := range byJob[r.job] {
			if n := overlap(old, r); n > 0 {
				redone = append(redone, redoneWork{first: old, second: r, bytes: n})
			}
			rest = append(rest, without(old, r)...)
		}
		byJob[r.job] = append(rest, r)
	}
	return redone
}

func overlap(a, b hashedRange) int64 {
	return max(min(a.end(), b.end())-max(a.offset, b.offset), 0)
}

// without returns the ranges of a that are not in b.
func without(a, b hashedRange) []hashedRange {
	if overlap(a, b) == 0 {
		return []hashedRange{a}
	}
	var rest []hashedRange
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

// redone attributes repeated work to its cause.
func (f *findings) redone(h *history) {
	for _, r := range hashedAgain(h.ranges) {
		first, second := h.fates[r.first.vm].kind, h.fates[r.second.vm].kind
		switch {
		case h.isDuplicated(r.first.job):
			f.TwiceByDuplicate += r.bytes
		case first == evicted:
			f.TwiceAfterNotice.Bytes += r.bytes
		case first == killed:
			f.TwiceAfterKill.Bytes += r.bytes
		case first == frozen, second == frozen:
			f.TwiceAfterFreeze.Bytes += r.bytes
		default:
			f.TwiceOtherwise += r.bytes
		}
	}
}

// kill adds the unsaved work of a killed VM's worker.
func (f *findings) kill(h *history, vm string) {
	f.Kills++
	at := h.fates[vm].at
	for _, s := range h.held(vm, at) {
		for _, lost := range h.unsaved(s, at) {
			f.TwiceAfterKill.Limit += lost.bytes
			f.OldestUnsaved = max(f.OldestUnsaved, at.Sub(lost.at))
		}
	}
	f.KillToResumed.addResumed(h, vm)
}

// freeze adds the work of a frozen VM's worker after it was thawed.
func (f *findings) freeze(h *history, vm string) {
	fate, frozen := h.fates[vm], &f.Frozen
	frozen.VMs++
	for _, s := range h.held(vm, fate.at) {
		if _, taken := h.resumed(s.job, vm, fate.at); !taken {
			continue // it was about to commit
		}
		frozen.Held++
		for _, lost := range h.unsaved(s, fate.at) {
			f.TwiceAfterFreeze.Limit += lost.bytes
		}
		end, ok := h.endAfter(s, fate.thawed)
		if ok = ok && !fate.thawed.IsZero() && end.kind != poisoned; ok {
			frozen.Fenced++
		}
		frozen.ThawedToFenced.add(fate.thawed, end.at)
		for _, r := range h.rangesOf(s) {
			if ok && r.at.After(fate.at) && !r.at.After(end.at) {
				f.TwiceAfterFreeze.Limit += r.bytes // hashed before it knew
			}
		}
	}
	for _, refused := range h.Refusals {
		if refused.VM == vm && refused.At.After(fate.at) {
			frozen.Refused++
		}
	}
	f.FreezeToResumed.addResumed(h, vm)
}

// notice adds how fast an evicted VM's worker drained.
func (f *findings) notice(h *history, vm string) {
	f.Evictions++
	fate, drain := h.fates[vm], h.drains[vm]
	f.AnnouncedToStopped.add(fate.at, drain.stopped)
	f.ServedToStopped.add(fate.served, drain.stopped)
	last := drain.stopped // without jobs, everything is released when work has stopped
	for _, s := range h.starts {
		if s.vm != vm {
			continue
		}
		end, ended := h.endOf(s)
		if !ended {
			last = time.Time{}
			break
		}
		if end.After(last) {
			last = end
		}
	}
	f.ServedToReleased.add(fate.served, last)
	f.NoticeToResumed.addResumed(h, vm)
}

// addResumed adds how long the jobs of a lost VM took until others resumed them.
func (m *measuredTime) addResumed(h *history, vm string) {
	at := h.fates[vm].at
	for _, s := range h.held(vm, at) {
		if h.committedBy(s.job, vm) {
			continue // its last write was already in flight
		}
		next, _ := h.resumed(s.job, vm, at)
		m.add(at, next.at)
	}
}

// add keeps the longest of several times. A zero time was not observed.
func (m *measuredTime) add(from, to time.Time) {
	if from.IsZero() || to.IsZero() {
		m.Missed++
		return
	}
	m.Seen++
	m.Duration = max(m.Duration, to.Sub(from))
}
