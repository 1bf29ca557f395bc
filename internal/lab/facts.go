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
	odd    []Odd               // what is to be poison
	fates  map[string]fate     // by VM
	halts  map[string]halt     // by VM
	states map[string]string   // of the workers' lifecycles, by VM
	owners map[string][]string // ids of messages put for a job, by job id

	writes   []write
	refusals []refusal
	moves    []move
	starts   []start
	spans    []span
	closings []closing
	blind    int // effective writes of records whose content was not seen
	foreign  int // messages that are neither a job of ours nor expected
}

// jobFact is a job as its message describes it.
type jobFact struct{ id, blob string }

// write is a write of a job's record that took effect: the storage emulator's
// word. Its token names the claim that wrote, its ETag what it left.
type write struct {
	job, vm, status string
	token, etag     string
	offset          int64 // in the state that it stored; -1 where it stored none
	began, ended    time.Time
}

// refusal is a write of a job's record that was refused because the record was
// not what it was to replace: the storage emulator's word. VM is the one whose
// write had left what it was to replace, empty for a create.
type refusal struct {
	job, vm string
	at      time.Time
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

// closing is a worker's word on how a delivery ended that it did not complete.
type closing struct {
	job, message, vm string
	kind             closingKind
	reason           string
	at               time.Time
}

type closingKind int

const (
	putBack  closingKind = iota + 1 // for later: another message has the job
	overdone                        // deleted: the job was over already
	dropped                         // left alone: another delivery has the job
	poisoned                        // moved to the poison queue
)

// halt is a worker's word on its own drain.
type halt struct {
	stopped, drained time.Time
	sinceNotice      string // as the worker measured it, until drained
}

// fate is what the script did to a VM.
type fate struct {
	kind   fateKind
	at     time.Time // announced, killed or frozen
	served time.Time // when the notice was first handed to the VM
	thawed time.Time // when a frozen worker went on
	gone   bool      // the VM was taken away
}

type fateKind int

const (
	spared  fateKind = iota
	evicted          // with notice
	killed           // without
	frozen           // stopped for a while
)

func newFacts() facts {
	return facts{
		jobs: map[string]jobFact{}, files: map[string]File{}, fates: map[string]fate{},
		halts: map[string]halt{}, states: map[string]string{}, owners: map[string][]string{},
	}
}

// clone copies the facts, so that they can be looked at in peace.
func (f *facts) clone() facts {
	c := *f
	c.jobs, c.files, c.fates = maps.Clone(f.jobs), maps.Clone(f.files), maps.Clone(f.fates)
	c.halts, c.states, c.owners = maps.Clone(f.halts), maps.Clone(f.states), maps.Clone(f.owners)
	c.writes, c.moves, c.refusals = slices.Clone(f.writes), slices.Clone(f.moves), slices.Clone(f.refusals)
	c.starts, c.spans, c.closings = slices.Clone(f.starts), slices.Clone(f.spans), slices.Clone(f.closings)
	return c
}

// good returns the ids of the jobs that are to be committed, in order.
func (f *facts) good() []string {
	ids := slices.Sorted(maps.Keys(f.jobs))
	return slices.DeleteFunc(ids, func(id string) bool {
		return slices.ContainsFunc(f.odd, func(o Odd) bool { return o.Job == id })
	})
}

// duplicated reports whether a job has more than one message.
func (f *facts) duplicated(job string) bool { return len(f.owners[job]) > 1 }

// commits counts the writes that ended the job with a result.
func (f *facts) commits(job string) (n int) {
	for _, w := range f.writes {
		if w.job == job && w.status == statusDone {
			n++
		}
	}
	return n
}

// committed counts the good jobs that have a result.
func (f *facts) committed() (n int) {
	for _, id := range f.good() {
		if f.commits(id) > 0 {
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

// statusAt returns the status of a job's record at a time.
func (f *facts) statusAt(job string, at time.Time) (status string) {
	for _, w := range f.writes {
		if w.job == job && !w.ended.After(at) {
			status = w.status
		}
	}
	return status
}

// staleWrites counts the writes that took effect although another claim had
// written the record since theirs did.
func (f *facts) staleWrites() (n int) {
	type claim struct{ job, token string }
	last := map[string]string{} // token, by job
	displaced := map[claim]bool{}
	for _, w := range f.writes {
		if displaced[claim{w.job, w.token}] {
			n++
		}
		if before := last[w.job]; before != w.token {
			displaced[claim{w.job, before}] = true
		}
		last[w.job] = w.token
	}
	return n
}
