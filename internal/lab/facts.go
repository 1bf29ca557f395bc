package lab

import (
	"maps"
	"slices"
	"time"
)

// facts are what witnesses saw, as they saw it. Times are of this machine's
// clock, which all of them share. Witnesses report at their own pace, so that
// what is derived from facts goes by their times and not by their order.
type facts struct {
	jobs   map[string]jobFact  // by job id
	files  map[string]File     // by blob name
	fates  map[string]fate     // by VM
	halts  map[string]halt     // by VM
	owners map[string][]string // ids of messages put for a job, by job id

	writes  []write
	moves   []move
	starts  []start
	spans   []span
	blind   int // effective writes of records whose content was not seen
	foreign int // messages that are no job of ours
}

// jobFact is a job as its message describes it.
type jobFact struct{ id, blob string }

// write is a write of a job's record that took effect: the storage emulator's
// word.
type write struct {
	job, vm, status string
	offset          int64 // in the state that it stored; -1 where it stored none
	began, ended    time.Time
}

// move is a message that went from hand to hand: the storage emulator's word.
type move struct {
	message string
	kind    moveKind
	at      time.Time
}

type moveKind int

const (
	handedOut moveKind = iota + 1 // by Get Messages
	released                      // made visible by its holder
	deleted
)

// start is a worker's word that it began a job.
type start struct {
	job, message, vm string
	fraction         float64 // where it went on
	at               time.Time
}

// span is a worker's word that it hashed these bytes of a job's blob.
type span struct {
	job, vm       string
	offset, bytes int64
	at            time.Time
}

// halt is a worker's word on its own drain.
type halt struct {
	stopped, drained time.Time
	sinceNotice      string // as the worker measured it, until drained
}

// fate is what the script did to a VM.
type fate struct {
	kind   fateKind
	at     time.Time // announced, or killed
	served time.Time // when the notice was first handed to the VM
}

type fateKind int

const (
	spared  fateKind = iota
	evicted          // with notice
	killed           // without
)

func newFacts() facts {
	return facts{
		jobs: map[string]jobFact{}, files: map[string]File{}, fates: map[string]fate{},
		halts: map[string]halt{}, owners: map[string][]string{},
	}
}

// clone copies the facts, so that they can be looked at in peace.
func (f *facts) clone() facts {
	c := *f
	c.jobs, c.files, c.fates = maps.Clone(f.jobs), maps.Clone(f.files), maps.Clone(f.fates)
	c.halts, c.owners = maps.Clone(f.halts), maps.Clone(f.owners)
	c.writes, c.moves = slices.Clone(f.writes), slices.Clone(f.moves)
	c.starts, c.spans = slices.Clone(f.starts), slices.Clone(f.spans)
	return c
}

// commits counts the writes that ended the job with a result.
func (f *facts) commits(job string) (n int) {
	for _, w := range f.writes {
		if w.job == job && w.status == statusDone {
			n++
		}
	}
	return n
}

// status returns the status that the job's record got last, empty without one.
func (f *facts) status(job string) (status string) {
	for _, w := range f.writes {
		if w.job == job {
			status = w.status
		}
	}
	return status
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

// end returns when the delivery that began with s was over for the storage: its
// message was handed to somebody again, released or deleted.
func (f *facts) end(s start) (time.Time, bool) {
	var first time.Time
	for _, m := range f.moves {
		if m.message == s.message && m.at.After(s.at) && (first.IsZero() || m.at.Before(first)) {
			first = m.at
		}
	}
	return first, !first.IsZero()
}

// savedBy returns the last state of a job that a VM's worker stored.
func (f *facts) savedBy(job, vm string) (last write, ok bool) {
	for _, w := range f.writes {
		if w.job == job && w.vm == vm && w.offset >= 0 {
			last, ok = w, true
		}
	}
	return last, ok
}
