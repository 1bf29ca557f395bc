package lab

import (
	"maps"
	"slices"
	"time"
)

// End is what lies in storage when the work is over.
type End struct {
	// Results are the bodies of the records that say done, by job id.
	Results map[string][]byte

	// Waiting are the ids of the jobs that have a message on the queue of jobs
	// or in the poison queue, and Messages is how many messages the former holds.
	Waiting  map[string]bool
	Messages int
}

// Findings are what came of the jobs, measured against the promises.
type Findings struct {
	Jobs    int
	Bytes   int64 // of all input files
	Workers int   // that were started, replacements included

	Committed      int
	CommittedTwice int
	Lost           int // neither committed nor on any queue, or deleted without an outcome
	WrongDigests   int
	Messages       int // left on the queue
	Unseen         int // writes and messages that the ledger could not read

	Evictions, Kills int
	TwiceAfterNotice int64 // bytes
	TwiceAfterKill   int64 // bytes
	UnsavedAtKill    int64 // bytes that killed workers had hashed after their last saves
	TwiceOtherwise   int64 // bytes hashed twice though nobody took the first worker away

	// OldestUnsaved is how long before a kill the oldest of the unsaved bytes
	// were hashed, and SlowestSave the longest that the storage had a save
	// before it took effect. The promise is one checkpoint interval and one save.
	OldestUnsaved, SlowestSave time.Duration

	// Of the evictions with notice the slowest: from the announcement at the
	// metadata endpoint and from its first delivery to the VM until the contexts
	// were cancelled, and from the delivery until the last message was released.
	AnnouncedToStopped, ServedToStopped, ServedToReleased Measured

	// Missing says of every job that is not committed where it is.
	Missing []string
}

// Measured is a time that may not have been observed.
type Measured struct {
	time.Duration
	Known bool
}

// audit derives the findings. It is a pure function of what was seen.
func audit(f *facts, end End) Findings {
	found := Findings{
		Jobs: len(f.jobs), Messages: end.Messages, Unseen: f.blind + f.foreign,
	}
	for _, file := range f.files {
		found.Bytes += file.Size
	}
	found.outcomes(f, end)
	found.redone(f)
	for _, vm := range slices.Sorted(maps.Keys(f.fates)) {
		switch f.fates[vm].kind {
		case evicted:
			found.notice(f, vm)
		case killed:
			found.kill(f, vm)
		case spared:
		}
	}
	return found
}

// outcomes counts how the jobs ended.
func (r *Findings) outcomes(f *facts, end End) {
	gone := deletedTooEarly(f)
	for _, id := range slices.Sorted(maps.Keys(f.jobs)) {
		commits := f.commits(id)
		if commits > 0 {
			r.Committed++
		}
		if commits > 1 {
			r.CommittedTwice++
		}
		switch {
		case commits > 0 && !right(end.Results[id], f.files[f.jobs[id].blob]):
			r.WrongDigests++
		case commits == 0:
			r.Missing = append(r.Missing, describe(f, id, end))
		}
		if gone[id] || commits == 0 && !end.Waiting[id] {
			r.Lost++
		}
	}
}

// deletedTooEarly returns the jobs whose message was deleted before their record
// was final: had the worker died then, nothing would have brought the job back.
func deletedTooEarly(f *facts) map[string]bool {
	gone := map[string]bool{}
	for job, messages := range f.owners {
		for _, m := range f.moves {
			if m.kind == deleted && slices.Contains(messages, m.message) && !final(f.statusAt(job, m.at)) {
				gone[job] = true
			}
		}
	}
	return gone
}

// statusAt returns the status of a job's record at a time.
func (f *facts) statusAt(job string, at time.Time) (status string) {
	for _, w := range f.writes {
		if w.job == job && !w.ended.After(at) {
			status = w.status
		}
	}
	return status
}

// redone attributes what was hashed twice to what was done to the first VM.
func (r *Findings) redone(f *facts) {
	for vm, bytes := range hashedTwice(f.spans) {
		switch f.fates[vm].kind {
		case evicted:
			r.TwiceAfterNotice += bytes
		case killed:
			r.TwiceAfterKill += bytes
		case spared:
			r.TwiceOtherwise += bytes
		}
	}
}

// kill adds what a killed VM's worker had done since its last saves.
func (r *Findings) kill(f *facts, vm string) {
	r.Kills++
	for _, s := range f.spans {
		if s.vm != vm || f.committedBy(s.job, vm) {
			continue
		}
		if w, ok := f.savedBy(s.job, vm); ok && s.end() <= w.offset {
			continue
		}
		r.UnsavedAtKill += s.bytes
		r.OldestUnsaved = max(r.OldestUnsaved, f.fates[vm].at.Sub(s.at))
	}
	for _, w := range f.writes {
		if w.offset >= 0 {
			r.SlowestSave = max(r.SlowestSave, w.ended.Sub(w.began))
		}
	}
}

// committedBy reports whether that VM's worker ended the job.
func (f *facts) committedBy(job, vm string) bool {
	return slices.ContainsFunc(f.writes, func(w write) bool {
		return w.job == job && w.vm == vm && w.status == statusDone
	})
}

// notice adds how an evicted VM's worker kept its times.
func (r *Findings) notice(f *facts, vm string) {
	r.Evictions++
	fate, halt := f.fates[vm], f.halts[vm]
	r.AnnouncedToStopped.worst(fate.at, halt.stopped, r.Evictions)
	r.ServedToStopped.worst(fate.served, halt.stopped, r.Evictions)
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
	r.ServedToReleased.worst(fate.served, last, r.Evictions)
}

// worst keeps the longest of several times, and forgets all if one is not known.
// n counts them from 1.
func (m *Measured) worst(from, to time.Time, n int) {
	known := !from.IsZero() && !to.IsZero() && (n == 1 || m.Known)
	*m = Measured{max(m.Duration, to.Sub(from)), known}
	if !known {
		m.Duration = 0
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
