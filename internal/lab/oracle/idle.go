package oracle

import (
	"fmt"
	"slices"
	"time"
)

// Span is the time from one moment to another.
type Span struct{ From, To time.Time }

// Length returns the length of the span.
func (s Span) Length() time.Duration { return s.To.Sub(s.From) }

// overlap returns what two spans have in common; its length is negative if that
// is nothing.
func (s Span) overlap(o Span) Span {
	if o.From.After(s.From) {
		s.From = o.From
	}
	if o.To.Before(s.To) {
		s.To = o.To
	}
	return s
}

// Slots are the job slots of one worker: when it could have taken another job.
type Slots struct {
	// Restricted says that the worker has the kind that some workers lack.
	Restricted bool

	since time.Time // a slot has been free since then; zero while none is
	spans []Span    // in which one was free before
}

// Set records whether a slot is free from now on.
func (s *Slots) Set(free bool, now time.Time) {
	switch {
	case free && s.since.IsZero():
		s.since = now
	case !free && !s.since.IsZero():
		s.spans, s.since = append(s.spans, Span{s.since, now}), time.Time{}
	}
}

// Free returns the spans up to now in which a slot was free.
func (s *Slots) Free(now time.Time) []Span {
	if s.since.IsZero() {
		return s.spans
	}
	return append(slices.Clip(s.spans), Span{s.since, now})
}

// LongestFree returns the longest part of a span in which a slot was free without
// a break, up to now.
func (s *Slots) LongestFree(within Span, now time.Time) (longest time.Duration) {
	for _, free := range s.Free(now) {
		longest = max(longest, within.overlap(free).Length())
	}
	return longest
}

// Idle is a time in which a job waited while a worker that could have taken it
// had a free slot.
type Idle struct {
	Job, VM string
	Span
}

func (i Idle) String() string {
	return fmt.Sprintf("job %s was idle for %s beside a free slot of %s, from %s to %s", i.Job,
		i.Length().Round(time.Millisecond), i.VM, i.From.Format(clock), i.To.Format(clock))
}

// WorstIdle returns the longest time that a job waited while one worker, the same
// all the time, could have taken it, and the same for quarantined jobs. Each time
// that worker asks for messages it gets any visible one, so the job was hidden
// all that time or the worker did not ask. It is a pure function.
func WorstIdle(jobs map[string]*Job, slots map[string]*Slots, now time.Time) (worst, quarantined Idle) {
	free := newFreeIndex(slots, now)
	for id, j := range jobs {
		for _, waited := range j.waits(now) {
			found, which := free.longest(waited, j.Restricted), &worst
			if j.uncleanExits(waited.From) >= quarantineAfter {
				which = &quarantined
			}
			if found.Length() > which.Length() {
				*which, which.Job = found, id
			}
		}
	}
	return worst, quarantined
}

// waits returns the spans in which no worker worked on the job, from its put to
// its outcome, or to now.
func (j *Job) waits(now time.Time) (waits []Span) {
	end := j.Ended
	if end.IsZero() {
		end = now
	}
	runs := slices.SortedFunc(slices.Values(j.Runs), func(a, b Span) int { return a.From.Compare(b.From) })
	at := j.Put
	for _, run := range append(runs, Span{end, end}) {
		if run.From.After(end) {
			run.From = end
		}
		if run.From.After(at) {
			waits = append(waits, Span{at, run.From})
		}
		if run.To.After(at) {
			at = run.To
		}
	}
	return waits
}

// quarantineAfter is how many unclean exits in a row put a job into quarantine:
// workers run one such job at a time, and after more unclean exits only if they
// have been running for a minute.
const quarantineAfter = 3

// uncleanExits returns how many acquisitions in a row, up to the last one before
// a time, ended without a release and without a new state.
func (j *Job) uncleanExits(by time.Time) (exits int) {
	chain, _ := InOrder(j.Writes)
	before, state := Write{}, "" // state is that with which the acquisition began
	end := func() {
		switch {
		case before.Token == "":
		case before.Status != Running || before.State != state:
			exits = 0
		default:
			exits++
		}
	}
	for _, w := range chain {
		if w.At.After(by) {
			break
		}
		if w.Token != before.Token {
			end()
			state = before.State
		}
		before = w
	}
	end()
	return exits
}

// freeIndex holds the spans with a free slot by the periods that they touch, so
// that a run of hours is judged in little time.
type freeIndex map[int64][]freeSpan

type freeSpan struct {
	Span
	vm         string
	restricted bool
}

// indexPeriod is the length of a period of the index.
const indexPeriod = 10 * time.Second

func newFreeIndex(slots map[string]*Slots, now time.Time) freeIndex {
	index := freeIndex{}
	for vm, s := range slots {
		for _, span := range s.Free(now) {
			for p := range span.periods() {
				index[p] = append(index[p], freeSpan{span, vm, s.Restricted})
			}
		}
	}
	return index
}

// periods are the periods of the index that a span touches.
func (s Span) periods() func(func(int64) bool) {
	return func(yield func(int64) bool) {
		for p := s.From.UnixNano() / int64(indexPeriod); p <= s.To.UnixNano()/int64(indexPeriod) && yield(p); p++ {
		}
	}
}

// longest returns the longest part of a wait in which one worker that has the
// job's kind had a free slot.
func (index freeIndex) longest(wait Span, restricted bool) (longest Idle) {
	for p := range wait.periods() {
		for _, free := range index[p] {
			if restricted && !free.restricted {
				continue
			}
			if both := (Idle{VM: free.vm, Span: wait.overlap(free.Span)}); both.Length() > longest.Length() {
				longest = both
			}
		}
	}
	return longest
}
