package chaos

import (
	"fmt"
	"slices"
	"time"
)

// Statuses of a record, as docs/FORMATS.md names them.
const (
	statusRunning   = "running"
	statusDone      = "done"
	statusPoison    = "poison"
	statusCancelled = "cancelled"
)

func final(status string) bool {
	return status == statusDone || status == statusPoison || status == statusCancelled
}

// verdict counts what was broken, of one job or of many.
type verdict struct {
	jobs, committed             int
	givenUp                     int // by the rule of ten deaths in a row; see doomed
	unjust                      int // given up otherwise
	lost                        int // no outcome, or no message before there was one
	twice                       int // committed more than once
	stale                       int // writes of somebody who was not the owner any more
	wrong                       int // results
	backwards                   int // states that were behind the one they replaced
	failures                    int // counted against a job, which never fails
	claims, taken, writes       int // claims in all; those after another claim that had not ended
	programs                    int
	duplicates, hit, mostKilled int
	longest                     time.Duration // from its put to its outcome
}

func (v *verdict) add(o verdict) {
	v.jobs += o.jobs
	v.committed += o.committed
	v.givenUp += o.givenUp
	v.unjust += o.unjust
	v.lost += o.lost
	v.twice += o.twice
	v.stale += o.stale
	v.wrong += o.wrong
	v.backwards += o.backwards
	v.failures += o.failures
	v.claims += o.claims
	v.taken += o.taken
	v.writes += o.writes
	v.programs += o.programs
	v.duplicates += o.duplicates
	v.hit += o.hit
	v.mostKilled = max(v.mostKilled, o.mostKilled)
	v.longest = max(v.longest, o.longest)
}

// broken says whether a promise was.
func (v *verdict) broken() bool {
	return v.lost+v.twice+v.stale+v.wrong+v.backwards+v.failures+v.unjust > 0
}

// judge says what became of one job. It is a pure function of what was seen.
func judge(f *jobFacts) verdict {
	v := verdict{jobs: 1, writes: len(f.writes), mostKilled: f.kills}
	if f.program {
		v.programs = 1
	}
	if f.copies > 1 {
		v.duplicates = 1
	}
	if f.kills > 0 {
		v.hit = 1
	}
	chain, loose := inOrder(f.writes)
	v.stale += loose
	tokens := map[string]bool{}
	step := -1
	for i, w := range chain {
		if i > 0 {
			v.follow(chain[i-1], w, tokens)
		}
		v.claim(i > 0 && chain[i-1].status == statusRunning, tokens[w.token])
		tokens[w.token] = true
		if w.step >= 0 && w.step < step {
			v.backwards++
		}
		step = max(step, w.step)
		if i > 0 && w.failures > chain[i-1].failures {
			v.failures++
		}
		v.outcome(w, chain[:i])
	}
	v.ending(f)
	return v
}

// claim counts a write under a token that was not there before.
func (v *verdict) claim(running, known bool) {
	if known {
		return
	}
	v.claims++
	if running {
		v.taken++
	}
}

// follow judges a write by the one that it replaced.
func (v *verdict) follow(before, w write, tokens map[string]bool) {
	switch {
	case final(before.status),
		w.unconditional,
		w.token == before.token && (w.generation != before.generation || w.number <= before.number),
		w.token != before.token && (tokens[w.token] || w.generation != before.generation+1):
		v.stale++
	}
}

// outcome judges a write that ends the job, by all writes before it.
func (v *verdict) outcome(w write, before []write) {
	switch {
	case w.status == statusDone:
		v.committed++
		if !w.right {
			v.wrong++
		}
	case w.status == statusPoison && doomed(before):
		v.givenUp++
	case final(w.status):
		v.unjust++
	}
}

// silentEnds is how many claims in a row must end without a word and without
// progress until a job is given up.
const silentEnds = 10

// doomed reports whether a job may be given up: so many claims in a row, up to the
// one that does it, were not released and stored no new state.
func doomed(writes []write) bool {
	ends := 0 // of claims, the one that is looked at included once it is not the last
	for i, w := range slices.Backward(writes) {
		before := write{}
		if i > 0 {
			before = writes[i-1]
		}
		if w.state != before.state {
			return ends > silentEnds // this claim made progress, and does not count
		}
		if i == 0 || w.token == before.token {
			continue
		}
		if before.status != statusRunning {
			break // it was released
		}
		ends++
	}
	return ends >= silentEnds
}

// ending judges how it ended, if it did.
func (v *verdict) ending(f *jobFacts) {
	if v.committed > 1 {
		v.committed, v.twice = 1, 1
	}
	if f.ended.IsZero() {
		v.lost = 1
		return
	}
	v.longest = f.ended.Sub(f.put)
	// Every end is a write that arrived before its message's deletion did.
	last := slices.IndexFunc(f.writes, func(w write) bool { return final(w.status) })
	if slices.ContainsFunc(f.deletions, func(at time.Time) bool { return at.Before(f.writes[last].arrived) }) {
		v.lost = 1
	}
}

// inOrder returns the writes in the order in which they took effect, which their
// ETags tell: each names the one that it replaced. loose are those that do not
// follow from the first one, or that follow the same write as another.
func inOrder(writes []write) (chain []write, loose int) {
	next := map[string]write{}
	for _, w := range writes {
		if _, forked := next[w.before]; forked {
			loose++
			continue
		}
		next[w.before] = w
	}
	for at := ""; ; {
		w, ok := next[at]
		if !ok {
			return chain, loose + len(next)
		}
		delete(next, at)
		chain = append(chain, w)
		at = w.after
	}
}

// story tells the writes of a job, for whoever looks into one.
func story(f *jobFacts) []string {
	lines := make([]string, 0, len(f.writes))
	for _, w := range f.writes {
		lines = append(lines, fmt.Sprintf("%s %-9s by %s, claim %.8s, generation %d, write %d, step %d, %s -> %s",
			w.arrived.Format("15:04:05.000"), w.status, w.vm, w.token, w.generation, w.number, w.step, w.before, w.after))
	}
	for _, at := range f.deletions {
		lines = append(lines, at.Format("15:04:05.000")+" message deleted")
	}
	return lines
}
