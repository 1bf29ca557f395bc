package oracle

import (
	"fmt"
	"slices"
	"time"
)

// Rule is a rule that a history can break.
type Rule int

// The rules, as the package's documentation describes them.
const (
	Lost Rule = iota
	Twice
	Stale
	Wrong
	Backwards
	Miscounted
	Unjust
	Disobeyed

	ruleCount
)

// Violation is a broken rule.
type Violation struct {
	Rule Rule
	Text string
}

// Record is the state of one record while its writes are judged in their order.
// The zero value is a record that does not exist.
type Record struct {
	// Healthy is the job's own Healthy. Failed is how often its handler has failed.
	Healthy bool
	Failed  int

	// Outcomes is how many outcomes the record got, without outcomes that an operator
	// replaced. Commits is how often it became done.
	Outcomes, Commits int

	writes   []Write
	tokens   map[string]bool // of all writes
	progress int64           // the furthest
	counted  int             // failures, by the record
}

// Status returns the record's status; empty before the first write.
func (r *Record) Status() string { return r.last().Status }

func (r *Record) last() Write {
	if len(r.writes) == 0 {
		return Write{}
	}
	return r.writes[len(r.writes)-1]
}

// Add adds the next write and returns the rules that it breaks.
func (r *Record) Add(w Write) (broken []Violation) {
	breaks := func(rule Rule, format string, args ...any) {
		broken = append(broken, Violation{rule, fmt.Sprintf(format, args...)})
	}
	before := r.last()
	if why := r.stale(w); why != "" {
		breaks(Stale, "%s", why)
	}
	if w.Reopens(before.Status) {
		r.Outcomes--
		if w.State == "" {
			r.progress = 0
		}
	}
	r.addProgress(w, breaks)
	if w.Failures > before.Failures {
		if r.counted++; r.counted > r.Failed {
			breaks(Miscounted, "%d failures counted, %d happened: an interruption was counted as one", r.counted, r.Failed)
		}
	}
	if Final(w.Status) {
		r.addOutcome(w, breaks)
	}
	if r.tokens == nil {
		r.tokens = map[string]bool{}
	}
	r.tokens[w.Token] = true
	r.writes = append(r.writes, w)
	return broken
}

// addProgress judges how far the state of a write is: never behind the one before.
func (r *Record) addProgress(w Write, breaks func(rule Rule, format string, args ...any)) {
	if w.Progress >= 0 && w.Progress < r.progress {
		breaks(Backwards, "progress went back from %d to %d", r.progress, w.Progress)
	}
	r.progress = max(r.progress, w.Progress)
}

// addOutcome judges a write with an outcome.
func (r *Record) addOutcome(w Write, breaks func(rule Rule, format string, args ...any)) {
	r.Outcomes++
	switch {
	case w.Status == Done:
		if r.Commits++; r.Commits > 1 {
			breaks(Twice, "the job was committed %d times", r.Commits)
		}
		if w.Wrong {
			breaks(Wrong, "the result is not the expected one")
		}
	case w.Status == Cancelled && w.Operator:
	case r.Healthy && (w.Status != Poison || !r.isDoomed()):
		breaks(Unjust, "the job became %s without cause", w.Status)
	}
}

// stale returns why a write must not have replaced the last one; empty if it may.
func (r *Record) stale(w Write) string {
	before := r.last()
	next := before.Generation // for the same token, and for an operator's
	if w.Token != before.Token && !w.Operator {
		next++
	}
	switch {
	case len(r.writes) == 0:
	case Final(before.Status) && !w.Reopens(before.Status):
		return fmt.Sprintf("a record that is %s was written over", before.Status)
	case w.Unconditional:
		return "a record was written over without a condition"
	case w.Token != before.Token && r.tokens[w.Token]:
		return fmt.Sprintf("token %.8s wrote although it had been superseded", w.Token)
	case w.Token == before.Token && w.Number <= before.Number:
		return fmt.Sprintf("write number went from %d to %d", before.Number, w.Number)
	case w.Generation != next:
		return fmt.Sprintf("generation went from %d to %d", before.Generation, w.Generation)
	}
	return ""
}

// deathLimit is how many acquisitions in a row must end with an unclean exit and
// without progress until a job is dead-lettered.
const deathLimit = 10

// isDoomed reports whether the job may be dead-lettered now: the deathLimit
// acquisitions before the last one were not released and stored no new state.
func (r *Record) isDoomed() bool {
	deaths := 0
	for i, w := range slices.Backward(r.writes) {
		before := Write{}
		if i > 0 {
			before = r.writes[i-1]
		}
		if w.State != before.State {
			return deaths > deathLimit // this acquisition made progress, and does not count
		}
		if i == 0 || w.Token == before.Token {
			continue
		}
		if before.Status != Running {
			break // it was released
		}
		deaths++
	}
	return deaths >= deathLimit
}

// InOrder returns the writes in the order in which they took effect, by their
// ETags. loose is how many do not follow from the first one, or replaced the same
// write as another.
func InOrder(writes []Write) (chain []Write, loose int) {
	next := map[string]Write{}
	for _, w := range writes {
		if _, forked := next[w.Before]; forked {
			loose++
			continue
		}
		next[w.Before] = w
	}
	for at := ""; ; {
		w, ok := next[at]
		if !ok {
			return chain, loose + len(next)
		}
		delete(next, at)
		chain = append(chain, w)
		at = w.After
	}
}

// Verdict is how often each rule was broken, by one job or by many, and what
// happened otherwise.
type Verdict struct {
	Broken [ruleCount]int

	Jobs, Committed int
	GivenUp         int // dead-lettered for cause
	Writes          int
	Acquired        int           // by a new token
	TakenOver       int           // acquired from an owner that had not released
	LongestLife     time.Duration // from a put to its outcome
}

// Add adds another verdict.
func (v *Verdict) Add(o Verdict) {
	for rule, n := range o.Broken {
		v.Broken[rule] += n
	}
	v.Jobs += o.Jobs
	v.Committed += o.Committed
	v.GivenUp += o.GivenUp
	v.Writes += o.Writes
	v.Acquired += o.Acquired
	v.TakenOver += o.TakenOver
	v.LongestLife = max(v.LongestLife, o.LongestLife)
}

// IsBroken reports whether any rule was broken.
func (v *Verdict) IsBroken() bool { return v.Broken != [ruleCount]int{} }

// Judge holds the whole history of a job to the rules. It is a pure function.
func (j *Job) Judge() Verdict {
	v := Verdict{Jobs: 1, Writes: len(j.Writes)}
	chain, loose := InOrder(j.Writes)
	v.Broken[Stale] = loose
	r := Record{Healthy: j.Healthy}
	for _, w := range chain {
		if !r.tokens[w.Token] {
			v.Acquired++
			if r.Status() == Running {
				v.TakenOver++
			}
		}
		broken := r.Add(w)
		for _, b := range broken {
			v.Broken[b.Rule]++
		}
		if w.Status == Poison && !slices.ContainsFunc(broken, func(b Violation) bool { return b.Rule == Unjust }) {
			v.GivenUp++
		}
	}
	commits := 0 // loose ones, too
	for _, w := range j.Writes {
		if w.Status == Done {
			commits++
		}
	}
	v.Committed = min(commits, 1)
	v.Broken[Twice] = min(max(commits-1, 0), 1)
	if j.isLost() {
		v.Broken[Lost] = 1
	}
	if !j.Ended.IsZero() {
		v.LongestLife = j.Ended.Sub(j.Put)
	}
	return v
}

// isLost reports whether the job has no outcome, or lost a message before it.
func (j *Job) isLost() bool { return j.Ended.IsZero() || j.LostMessage() }

// LostMessage reports whether a message of the job was deleted before the job had
// an outcome or another message: had the worker been killed then, nothing would have
// continued it.
func (j *Job) LostMessage() bool {
	first := slices.IndexFunc(j.Writes, func(w Write) bool { return Final(w.Status) })
	early := 0
	for _, at := range slices.SortedFunc(slices.Values(j.Deletions), time.Time.Compare) {
		if first >= 0 && !at.Before(j.Writes[first].At) {
			break
		}
		early++
		replaced := 0
		for _, put := range j.Replacements {
			if !put.After(at) {
				replaced++
			}
		}
		if replaced < early {
			return true
		}
	}
	return false
}
