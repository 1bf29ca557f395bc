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

	// Poison are the messages in the poison queue.
	Poison []poisonFact
}

// Findings are what came of the jobs, measured against the promises.
type Findings struct {
	Jobs    int   // that are to be committed
	Bytes   int64 // of all input
	Workers int   // that were started, replacements included

	Committed      int
	CommittedTwice int
	Lost           int // neither committed nor on any queue, or deleted without an outcome
	WrongDigests   int
	Messages       int // left on the queue
	Unseen         int // writes and messages that the ledger could not read

	Duplicates, Absorbed int // jobs that were put twice, and committed once with no message left

	Odd    []OddEnd
	Poison []poisonFact

	StaleWrites int // that took effect although the job was claimed anew before
	Frozen      Frozen

	Evictions, Kills int
	TwiceAfterNotice Redone
	TwiceAfterKill   Redone
	TwiceAfterFreeze Redone
	TwiceByDuplicate int64
	TwiceOtherwise   int64 // bytes hashed twice though nobody took the first worker away

	// OldestUnsaved is how long before a kill the oldest of the unsaved bytes
	// were hashed, and SlowestSave the longest that the storage had a save
	// before it took effect. The promise is one checkpoint interval and one save.
	OldestUnsaved, SlowestSave time.Duration

	// LongestDuplicate is the longest that a worker worked on a duplicate before
	// its first write told it so.
	LongestDuplicate Measured

	// Of the evictions with notice the slowest: from the announcement at the
	// metadata endpoint and from its first delivery to the VM until the contexts
	// were cancelled, and from the delivery until the last message was released.
	AnnouncedToStopped, ServedToStopped, ServedToReleased Measured

	// Of the jobs of lost VMs the slowest: from the announcement, death or freeze
	// until another worker went on.
	NoticeToResumed, KillToResumed, FreezeToResumed Measured

	// Missing says of every job that is not committed where it is.
	Missing []string
}

// OddEnd is what came of a message that no worker can do anything with.
type OddEnd struct {
	Label string
	Kept  bool // in the poison queue, with the right reason, and nowhere else
}

// Frozen is what came of workers that were stopped and went on later.
type Frozen struct {
	VMs     int
	Held    int // jobs that they had in hand and others took over
	Fenced  int // of these: that they let go by their own log
	Refused int // their writes that the storage refused for that

	// ThawedToFenced is the longest from going on to letting a job go.
	ThawedToFenced Measured
}

// Redone is work that was done twice, in bytes, and how much may have been: what
// was hashed and not saved.
type Redone struct{ Bytes, Limit int64 }

// Measured is the longest of several times, of which some may not have been
// observed.
type Measured struct {
	time.Duration
	Seen, Missed int
}

// Known reports whether all of the times were observed.
func (m Measured) Known() bool { return m.Seen > 0 && m.Missed == 0 }

// audit derives the findings. It is a pure function of what was seen.
func audit(f *facts, end End) Findings {
	found := Findings{
		Jobs: len(f.good()), Messages: end.Messages, Unseen: f.blind + f.foreign, Poison: end.Poison,
		StaleWrites: f.staleWrites(), SlowestSave: f.slowestSave(),
	}
	for _, file := range f.files {
		found.Bytes += file.Size
	}
	found.outcomes(f, end)
	found.oddities(f, end)
	found.duplicates(f, end)
	found.redone(f)
	for _, vm := range slices.Sorted(maps.Keys(f.fates)) {
		switch f.fates[vm].kind {
		case evicted:
			found.notice(f, vm)
		case killed:
			found.kill(f, vm)
		case frozen:
			found.freeze(f, vm)
		case spared:
		}
	}
	return found
}

// outcomes counts how the jobs ended.
func (r *Findings) outcomes(f *facts, end End) {
	gone := deletedTooEarly(f)
	for _, id := range f.good() {
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

// oddities looks for the messages that were to become poison.
func (r *Findings) oddities(f *facts, end End) {
	for _, odd := range f.odd {
		kept := slices.ContainsFunc(end.Poison, func(p poisonFact) bool { return p.is(odd) && p.gives(odd.Reason) })
		r.Odd = append(r.Odd, OddEnd{Label: odd.Label, Kept: kept && f.commits(odd.Job) == 0})
	}
}

// duplicates counts what came of jobs that were put more than once.
func (r *Findings) duplicates(f *facts, end End) {
	for _, id := range f.good() {
		if !f.duplicated(id) {
			continue
		}
		r.Duplicates++
		if f.commits(id) == 1 && !end.Waiting[id] {
			r.Absorbed++
		}
		for _, s := range f.starts {
			if c, ok := f.closed(s, s.at); ok && s.job == id {
				r.LongestDuplicate.add(s.at, c.at)
			}
		}
	}
}
