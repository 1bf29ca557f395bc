package demo

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/lab/stage"
)

// history holds the events of a run. All times are of this machine's clock. Events are
// recorded in no particular order, so conclusions from them go by their times.
type history struct {
	*stage.Facts

	blobs  map[string]string // blob names, by job id
	files  map[string]lab.File
	bad    []badMessage
	born   map[string]time.Time // starts of VMs
	fates  map[string]fate      // by VM
	drains map[string]drain     // by VM

	starts []start
	ranges []hashedRange
	ends   []deliveryEnd
}

// start is the start of a delivery of a job, by the worker's log.
type start struct {
	job, message, vm string
	fraction         float64 // where it resumed
	at               time.Time
}

// hashedRange is a range of a job's blob that a worker hashed, by its log.
type hashedRange struct {
	job, vm       string
	offset, bytes int64
	at            time.Time
}

func (r hashedRange) end() int64 { return r.offset + r.bytes }

// deliveryEnd is how a delivery ended without a commit, by the worker's log.
type deliveryEnd struct {
	job, message, vm string
	kind             endKind
	reason           string
	at               time.Time
}

type endKind int

const (
	deferred    endKind = iota + 1 // another message has the job
	superfluous                    // deleted: the job had an outcome
	dropped                        // left alone: another delivery has the job
	poisoned                       // moved to the poison queue
)

// drain is a worker's drain, by its log.
type drain struct {
	stopped, ended time.Time
	sinceNotice    string // at the end, as the worker measured it
}

// fate is the script's action on a VM.
type fate struct {
	kind   fateKind
	at     time.Time // when it was announced, killed or frozen
	served time.Time // when the notice was first served to the VM
	thawed time.Time // when a frozen worker resumed
	gone   time.Time // when the VM was removed
}

type fateKind int

const (
	spared  fateKind = iota
	evicted          // with notice
	killed           // without
	frozen           // suspended for a while
)

func newHistory() *history {
	return &history{
		Facts: new(stage.NewFacts()), blobs: map[string]string{}, files: map[string]lab.File{},
		born: map[string]time.Time{}, fates: map[string]fate{}, drains: map[string]drain{},
	}
}

// good returns the ids of the jobs that must be committed, in order.
func (h *history) good() []string {
	ids := slices.Sorted(maps.Keys(h.Jobs))
	return slices.DeleteFunc(ids, func(id string) bool {
		return slices.ContainsFunc(h.bad, func(b badMessage) bool { return b.job == id })
	})
}

// writes returns the writes of a job's record, oldest first.
func (h *history) writes(job string) []oracle.Write {
	if j := h.Jobs[job]; j != nil {
		return j.Writes
	}
	return nil
}

// isDuplicated reports whether a job has more than one message.
func (h *history) isDuplicated(job string) bool {
	j := h.Jobs[job]
	return j != nil && len(j.Messages) > 1
}

// commits returns how many writes committed the job.
func (h *history) commits(job string) (n int) {
	for _, w := range h.writes(job) {
		if w.Status == oracle.Done {
			n++
		}
	}
	return n
}

// committed returns how many good jobs are committed.
func (h *history) committed() (n int) {
	for _, id := range h.good() {
		if h.commits(id) > 0 {
			n++
		}
	}
	return n
}

// committedBy reports whether that VM's worker committed the job.
func (h *history) committedBy(job, vm string) bool {
	return slices.ContainsFunc(h.writes(job), func(w oracle.Write) bool { return w.VM == vm && w.Status == oracle.Done })
}

// statusAt returns the status of a job's record at a time; empty without one.
func (h *history) statusAt(job string, at time.Time) (status string) {
	for _, w := range h.writes(job) {
		if !w.At.After(at) {
			status = w.Status
		}
	}
	return status
}

// activeJob is a job that a VM's worker is working on, in bytes of its blob.
type activeJob struct {
	job, blob string
	size      int64
	hashed    int64 // up to where this delivery hashed it
	saved     int64 // up to where the record's state says; 0 without one

	// unsavedSince is when the oldest of the bytes between saved and hashed were
	// hashed; zero if there are none.
	unsavedSince time.Time
}

// held returns the starts of the deliveries that a VM's worker held at a time, by
// job id: started, not ended, and their job without a result.
func (h *history) held(vm string, at time.Time) []start {
	var held []start
	for _, s := range h.starts {
		if s.vm != vm || s.at.After(at) || h.statusAt(s.job, at) == oracle.Done {
			continue
		}
		if end, ended := h.endOf(s); !ended || end.After(at) {
			held = append(held, s)
		}
	}
	slices.SortFunc(held, func(a, b start) int { return cmp.Compare(a.job, b.job) })
	return held
}

// active returns the jobs that a VM's worker is working on, by job id.
func (h *history) active(vm string) []activeJob {
	var jobs []activeJob
	for _, s := range h.held(vm, time.Now()) {
		jobs = append(jobs, h.progress(s))
	}
	return jobs
}

// progress returns the progress of a delivery.
func (h *history) progress(s start) activeJob {
	blob := h.blobs[s.job]
	a := activeJob{job: s.job, blob: blob, size: h.files[blob].Size}
	for _, w := range h.writes(s.job) {
		if w.Progress >= 0 {
			a.saved = w.Progress
		}
	}
	a.hashed = int64(s.fraction*float64(a.size) + 0.5)
	for _, r := range h.rangesOf(s) {
		a.hashed = max(a.hashed, r.end())
		if r.end() > a.saved && (a.unsavedSince.IsZero() || r.at.Before(a.unsavedSince)) {
			a.unsavedSince = r.at
		}
	}
	return a
}

// rangesOf returns the ranges that a delivery hashed.
func (h *history) rangesOf(s start) []hashedRange {
	var ranges []hashedRange
	for _, r := range h.ranges {
		if r.job == s.job && r.vm == s.vm && !r.at.Before(s.at) {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// unsaved returns the ranges that a delivery had hashed by a time and never saved: the
// work that is lost with it.
func (h *history) unsaved(s start, by time.Time) []hashedRange {
	var saved int64
	for _, w := range h.writes(s.job) {
		if w.VM == s.vm && w.Progress >= 0 && w.At.After(s.at) {
			saved = w.Progress
		}
	}
	return slices.DeleteFunc(h.rangesOf(s), func(r hashedRange) bool { return r.end() <= saved || r.at.After(by) })
}

// lastStart returns the newest start of a job.
func (h *history) lastStart(job string) (last start, ok bool) {
	for _, s := range h.starts {
		if s.job == job && (!ok || s.at.After(last.at)) {
			last, ok = s, true
		}
	}
	return last, ok
}

// resumed returns the first start of a job on another VM after a time.
func (h *history) resumed(job, vm string, after time.Time) (first start, ok bool) {
	for _, s := range h.starts {
		if s.job == job && s.vm != vm && s.at.After(after) && (!ok || s.at.Before(first.at)) {
			first, ok = s, true
		}
	}
	return first, ok
}

// endOf returns when the delivery that began with s ended: its worker no longer
// held the message, or deferred or dropped it.
func (h *history) endOf(s start) (end time.Time, ended bool) {
	note := func(at time.Time) {
		if at.After(s.at) && (!ended || at.Before(end)) {
			end, ended = at, true
		}
	}
	for _, held := range h.Holds {
		if held.Message == s.message && held.VM == s.vm && !held.To.IsZero() {
			note(held.To)
		}
	}
	for _, e := range h.ends {
		if e.message == s.message && e.vm == s.vm {
			note(e.at)
		}
	}
	return end, ended
}

// endAfter returns how a worker ended a delivery after a time, without a commit.
func (h *history) endAfter(s start, after time.Time) (deliveryEnd, bool) {
	i := slices.IndexFunc(h.ends, func(e deliveryEnd) bool {
		return e.message == s.message && e.vm == s.vm && e.at.After(after)
	})
	if i < 0 {
		return deliveryEnd{}, false
	}
	return h.ends[i], true
}

// isFenced reports whether every worker that was frozen has stopped working on
// the jobs that others took over.
func (h *history) isFenced() bool {
	for vm, fate := range h.fates {
		if fate.kind != frozen {
			continue
		}
		for _, s := range h.held(vm, fate.at) {
			_, taken := h.resumed(s.job, vm, fate.at)
			if _, ended := h.endAfter(s, fate.thawed); taken && !ended {
				return false
			}
		}
	}
	return true
}
