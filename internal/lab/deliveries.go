package lab

import (
	"cmp"
	"slices"
	"time"
)

// InHand is a job that a VM's worker is working on, in bytes of its blob.
type InHand struct {
	Job, Blob string
	Size      int64
	Hashed    int64 // up to where this delivery hashed it
	Saved     int64 // up to where the record's state says; 0 without one

	// UnsavedSince is when the oldest of the bytes between Saved and Hashed were
	// hashed; zero if there are none.
	UnsavedSince time.Time
}

// middle reports whether a job is begun and not nearly over, with work that was
// not saved for that long.
func (h InHand) middle(unsavedFor time.Duration, now time.Time) bool {
	return h.Hashed < h.Size && !h.UnsavedSince.IsZero() && now.Sub(h.UnsavedSince) >= unsavedFor
}

// held returns the starts of the deliveries that a VM's worker had in hand at a
// time, by job id: begun, not over, and their job without a result.
func (f *facts) held(vm string, at time.Time) []start {
	var held []start
	for _, s := range f.starts {
		if s.vm != vm || s.at.After(at) || f.statusAt(s.job, at) == statusDone {
			continue
		}
		if end, over := f.end(s); !over || end.After(at) {
			held = append(held, s)
		}
	}
	slices.SortFunc(held, func(a, b start) int { return cmp.Compare(a.job, b.job) })
	return held
}

// inHand returns what a VM's worker has in hand now, by job id.
func (f *facts) inHand(vm string) []InHand {
	var jobs []InHand
	for _, s := range f.held(vm, time.Now()) {
		jobs = append(jobs, f.progress(s))
	}
	return jobs
}

// progress returns how far a delivery has come.
func (f *facts) progress(s start) InHand {
	j := f.jobs[s.job]
	h := InHand{Job: j.id, Blob: j.blob, Size: f.files[j.blob].Size}
	for _, w := range f.writes {
		if w.job == s.job && w.offset >= 0 {
			h.Saved = w.offset
		}
	}
	h.Hashed = int64(s.fraction*float64(h.Size) + 0.5)
	for _, span := range f.spansOf(s) {
		h.Hashed = max(h.Hashed, span.end())
		if span.end() > h.Saved && (h.UnsavedSince.IsZero() || span.at.Before(h.UnsavedSince)) {
			h.UnsavedSince = span.at
		}
	}
	return h
}

// spansOf returns what a delivery hashed.
func (f *facts) spansOf(s start) []span {
	var spans []span
	for _, span := range f.spans {
		if span.job == s.job && span.vm == s.vm && !span.at.Before(s.at) {
			spans = append(spans, span)
		}
	}
	return spans
}

// unsaved returns what a delivery had hashed by a time and not saved with any
// write that took effect, however late: the work that is lost with it.
func (f *facts) unsaved(s start, by time.Time) []span {
	var saved int64
	for _, w := range f.writes {
		if w.job == s.job && w.vm == s.vm && w.offset >= 0 && w.ended.After(s.at) {
			saved = w.offset
		}
	}
	return slices.DeleteFunc(f.spansOf(s), func(span span) bool { return span.end() <= saved || span.at.After(by) })
}

// lastStart returns the newest start of a job.
func (f *facts) lastStart(job string) (last start, ok bool) {
	for _, s := range f.starts {
		if s.job == job && (!ok || s.at.After(last.at)) {
			last, ok = s, true
		}
	}
	return last, ok
}

// resumed returns the first start of a job on another VM after a time.
func (f *facts) resumed(job, vm string, after time.Time) (first start, ok bool) {
	for _, s := range f.starts {
		if s.job == job && s.vm != vm && s.at.After(after) && (!ok || s.at.Before(first.at)) {
			first, ok = s, true
		}
	}
	return first, ok
}

// end returns when the delivery that began with s was over: its message was
// handed to somebody again, released or deleted, or its worker put it back or
// let it go.
func (f *facts) end(s start) (time.Time, bool) {
	var first time.Time
	note := func(at time.Time) {
		if at.After(s.at) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for _, m := range f.moves {
		if m.message == s.message {
			note(m.at)
		}
	}
	for _, c := range f.closings {
		if c.message == s.message && c.vm == s.vm {
			note(c.at)
		}
	}
	return first, !first.IsZero()
}

// closed returns how a worker let a delivery go, after a time.
func (f *facts) closed(s start, after time.Time) (closing, bool) {
	for _, c := range f.closings {
		if c.message == s.message && c.vm == s.vm && c.at.After(after) {
			return c, true
		}
	}
	return closing{}, false
}
