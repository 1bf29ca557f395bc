package lab

import (
	"slices"
	"time"
)

// This file measures what became of the work of VMs that were lost.

// redone attributes what was hashed twice to its cause.
func (r *Findings) redone(f *facts) {
	for _, a := range hashedAgain(f.spans) {
		first, second := f.fates[a.first.vm].kind, f.fates[a.second.vm].kind
		switch {
		case f.duplicated(a.first.job):
			r.TwiceByDuplicate += a.bytes
		case first == evicted:
			r.TwiceAfterNotice.Bytes += a.bytes
		case first == killed:
			r.TwiceAfterKill.Bytes += a.bytes
		case first == frozen, second == frozen:
			r.TwiceAfterFreeze.Bytes += a.bytes
		default:
			r.TwiceOtherwise += a.bytes
		}
	}
}

// kill adds what a killed VM's worker had done since its last saves.
func (r *Findings) kill(f *facts, vm string) {
	r.Kills++
	at := f.fates[vm].at
	for _, s := range f.held(vm, at) {
		for _, lost := range f.unsaved(s, at) {
			r.TwiceAfterKill.Limit += lost.bytes
			r.OldestUnsaved = max(r.OldestUnsaved, at.Sub(lost.at))
		}
	}
	r.KillToResumed.resumed(f, vm)
}

// freeze adds what a frozen VM's worker did when it went on.
func (r *Findings) freeze(f *facts, vm string) {
	fate, frozen := f.fates[vm], &r.Frozen
	frozen.VMs++
	for _, s := range f.held(vm, fate.at) {
		if _, taken := f.resumed(s.job, vm, fate.at); !taken {
			continue // it was about to commit
		}
		frozen.Held++
		for _, lost := range f.unsaved(s, fate.at) {
			r.TwiceAfterFreeze.Limit += lost.bytes
		}
		c, ok := f.closed(s, fate.thawed)
		if ok = ok && !fate.thawed.IsZero() && c.kind != poisoned; ok {
			frozen.Fenced++
		}
		frozen.ThawedToFenced.add(fate.thawed, c.at)
		for _, span := range f.spansOf(s) {
			if ok && span.at.After(fate.at) && !span.at.After(c.at) {
				r.TwiceAfterFreeze.Limit += span.bytes // read while it did not know yet
			}
		}
	}
	for _, refused := range f.refusals {
		if refused.vm == vm && refused.at.After(fate.at) {
			frozen.Refused++
		}
	}
	r.FreezeToResumed.resumed(f, vm)
}

// notice adds how an evicted VM's worker kept its times.
func (r *Findings) notice(f *facts, vm string) {
	r.Evictions++
	fate, halt := f.fates[vm], f.halts[vm]
	r.AnnouncedToStopped.add(fate.at, halt.stopped)
	r.ServedToStopped.add(fate.served, halt.stopped)
	last := halt.stopped // nothing in hand is released as soon as work has stopped
	for _, s := range f.starts {
		if s.vm != vm {
			continue
		}
		at, over := f.end(s)
		if !over {
			last = time.Time{}
			break
		}
		last = latest(last, at)
	}
	r.ServedToReleased.add(fate.served, last)
	r.NoticeToResumed.resumed(f, vm)
}

// resumed adds how long the jobs of a lost VM took until others went on.
func (m *Measured) resumed(f *facts, vm string) {
	at := f.fates[vm].at
	for _, s := range f.held(vm, at) {
		if f.committedBy(s.job, vm) {
			continue // its last write was already under way
		}
		next, _ := f.resumed(s.job, vm, at)
		m.add(at, next.at)
	}
}

// committedBy reports whether that VM's worker ended the job.
func (f *facts) committedBy(job, vm string) bool {
	return slices.ContainsFunc(f.writes, func(w write) bool {
		return w.job == job && w.vm == vm && w.status == statusDone
	})
}

// slowestSave returns the longest that the storage had a save before it took
// effect.
func (f *facts) slowestSave() (slowest time.Duration) {
	for _, w := range f.writes {
		if w.offset >= 0 {
			slowest = max(slowest, w.ended.Sub(w.began))
		}
	}
	return slowest
}

// add keeps the longest of several times. A zero time was not observed.
func (m *Measured) add(from, to time.Time) {
	if from.IsZero() || to.IsZero() {
		m.Missed++
		return
	}
	m.Seen++
	m.Duration = max(m.Duration, to.Sub(from))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
