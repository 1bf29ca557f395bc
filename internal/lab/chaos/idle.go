package chaos

import (
	"fmt"
	"slices"
	"time"
)

// The oracle of idleness. A job is idle from its put to its outcome, except while
// a live worker that holds its message works on it. A worker could take it while
// its VM is undisturbed, it has the job's kind and fewer messages in hand than
// slots. What counts is how long both are true without a break, for one job and
// one and the same worker: each time that worker claims, it gets whatever is
// visible, so the job was hidden all that time or the worker did not ask.

// Parts of the bound. Each is what the worker promises, not what was measured.
const (
	// longestPause is between two claims of a worker that finds its queue empty:
	// 8 s, give or take a quarter.
	longestPause = 10 * time.Second

	// deferral is the longest that a worker hides a message that it leaves to
	// others, such as a duplicate. One of a kind that it lacks, and that a live
	// worker has, is hidden for a second only.
	deferral = 30 * time.Second

	// machineSlack is for calls and processes that wait for a processor.
	machineSlack = 5 * time.Second
)

// idleBound is how long a job may be idle beside a worker that could take it: it
// is hidden by a worker that is gone, frozen or cut off (whose last renewal or
// claim may have been delayed), or by one that deferred it; then the other worker
// finishes its pause.
func idleBound(c Config) time.Duration {
	return max(c.Visibility+maxDelay(c.Visibility), deferral) + longestPause + machineSlack
}

// idling is a job that waited beside a worker that could take it.
type idling struct {
	job, vm string
	span
}

func (i idling) length() time.Duration { return i.to.Sub(i.from) }

func (i idling) String() string {
	return fmt.Sprintf("job %s was idle for %s beside a free slot of %s, from %s to %s", i.job,
		i.length().Round(time.Millisecond), i.vm, i.from.Format("15:04:05.000"), i.to.Format("15:04:05.000"))
}

// idleSpans are the times in which a job was idle, up to its outcome, or to now.
func (f *jobFacts) idleSpans(now time.Time) []span {
	end := f.ended
	if end.IsZero() {
		end = now
	}
	runs := slices.Clone(f.runs)
	slices.SortFunc(runs, func(a, b span) int { return a.from.Compare(b.from) })
	var idle []span
	at := f.put
	for _, run := range append(runs, span{end, end}) {
		if from := earliest(run.from, end); from.After(at) {
			idle = append(idle, span{at, from})
		}
		if run.to.After(at) {
			at = run.to
		}
	}
	return idle
}

// worstIdle returns the longest that a job was idle beside a worker that could
// take it, and the same of jobs in quarantine. It is a pure function of what was
// seen.
func worstIdle(jobs map[string]*jobFacts, vms map[string]*vmFacts, now time.Time) (worst, quarantined idling) {
	free := newFreeIndex(vms, now)
	for id, f := range jobs {
		for _, idle := range f.idleSpans(now) {
			both, which := free.longest(idle, f.program), &worst
			if f.uncleanExits(idle.from) >= quarantineAfter {
				which = &quarantined
			}
			if both.length() > which.length() {
				*which, which.job = both, id
			}
		}
	}
	return worst, quarantined
}

// quarantineAfter is how many unclean exits in a row make workers take a job for
// one that kills them: they run one such job at a time, and after some more only
// where they have run for a minute. For all that they know it is not healthy.
const quarantineAfter = 3

// uncleanExits is how many claims in a row, up to the last one before at, ended
// with neither a release nor a new state.
func (f *jobFacts) uncleanExits(at time.Time) (exits int) {
	chain, _ := inOrder(f.writes)
	before, state := write{}, "" // state is that with which the claim began
	end := func() {
		switch {
		case before.token == "":
		case before.status != statusRunning || before.state != state:
			exits = 0
		default:
			exits++
		}
	}
	for _, w := range chain {
		if w.arrived.After(at) {
			break
		}
		if w.token != before.token {
			end()
			state = before.state
		}
		before = w
	}
	end()
	return exits
}

// freeIndex holds the spans in which workers could take a job, by the periods that
// they touch, so that a run of hours is judged in little time.
type freeIndex map[int64][]freeSpan

type freeSpan struct {
	span
	vm       string
	programs bool
}

// indexPeriod is the length of a period of the index.
const indexPeriod = 10 * time.Second

func newFreeIndex(vms map[string]*vmFacts, now time.Time) freeIndex {
	index := freeIndex{}
	for name, v := range vms {
		spans := v.idle
		if !v.idleFrom.IsZero() {
			spans = append(slices.Clone(spans), span{v.idleFrom, now})
		}
		for _, s := range spans {
			for p := range s.periods() {
				index[p] = append(index[p], freeSpan{s, name, v.programs})
			}
		}
	}
	return index
}

// periods are those of the index that a span touches.
func (s span) periods() func(func(int64) bool) {
	return func(yield func(int64) bool) {
		for p := s.from.UnixNano() / int64(indexPeriod); p <= s.to.UnixNano()/int64(indexPeriod) && yield(p); p++ {
		}
	}
}

// longest returns the longest part of an idle span in which one worker that has
// the kind could have taken the job.
func (index freeIndex) longest(idle span, program bool) (longest idling) {
	for p := range idle.periods() {
		for _, free := range index[p] {
			if program && !free.programs {
				continue
			}
			both := idling{vm: free.vm, span: span{latest(idle.from, free.from), earliest(idle.to, free.to)}}
			if both.length() > longest.length() {
				longest = both
			}
		}
	}
	return longest
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
