package oracle

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// began is when every job of these tests was put.
var began = time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)

// at is a moment of a test.
func at(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }

// testJob builds the history of a job, in the order of the storage.
type testJob struct{ Job }

func newJob() *testJob { return &testJob{Job{Put: began, Healthy: true}} }

// wrote adds a write that follows the last one.
func (j *testJob) wrote(token string, generation, number int, progress int64, status string) *testJob {
	n := len(j.Writes)
	w := Write{
		VM: "vm-" + token, Token: token, Generation: generation, Number: number, Progress: progress, Status: status,
		After: fmt.Sprint(n + 1), At: at(n),
	}
	if n > 0 {
		w.Before = j.Writes[n-1].After
	}
	j.Writes = append(j.Writes, w)
	if Final(status) && j.Ended.IsZero() {
		j.Ended = w.At
	}
	return j
}

// deleted adds the deletion of the job's message, just before the next write.
func (j *testJob) deleted() *testJob {
	j.Deletions = append(j.Deletions, at(len(j.Writes)).Add(-time.Millisecond))
	return j
}

// replaced adds another message, which a worker put just before the deletion of the one before.
func (j *testJob) replaced() *testJob {
	j.Replacements = append(j.Replacements, at(len(j.Writes)).Add(-2*time.Millisecond))
	return j
}

// deaths is a job that was acquired that many times without a release, and then
// again.
func deaths(n int) *testJob {
	j := newJob()
	for i := range n + 1 {
		token := fmt.Sprint(i)
		if i == n {
			token = "end"
		}
		j.wrote(token, i+1, 1, -1, Running)
	}
	return j
}

// but changes a write, and the state of the writes that follow.
func (j *testJob) but(i int, change func(*Write)) *testJob {
	change(&j.Writes[i])
	for k := i + 1; k < len(j.Writes); k++ {
		j.Writes[k].State = j.Writes[i].State
	}
	return j
}

func usual() *testJob { return newJob().wrote("a", 1, 1, 3, Running).wrote("a", 1, 2, 6, Running) }

// A failure is counted once; what follows keeps the number.
func TestMiscountedFailure(t *testing.T) {
	j := usual().wrote("b", 2, 1, -1, Running).wrote("b", 2, 2, -1, Done).deleted()
	j.Writes[1].Failures, j.Writes[2].Failures = 1, 1
	if v := j.Judge(); v.Broken[Miscounted] != 1 || !v.IsBroken() {
		t.Errorf("Judge = %+v, want one failure miscounted", v)
	}
	r := Record{Failed: 1}
	for _, w := range j.Writes {
		if broken := r.Add(w); len(broken) > 0 {
			t.Errorf("a failure that happened breaks %v, want nothing", broken)
		}
	}
}

// TestJudge has a history for each rule that can be broken, and histories that break
// none.
func TestJudge(t *testing.T) {
	stated := func(w *Write) { w.State = "s" }
	for name, row := range map[string]struct {
		job    *testJob
		want   Verdict // without the broken rules
		breaks []Rule  // once each
	}{
		"done": {job: usual().wrote("a", 1, 3, -1, Done).deleted(), want: Verdict{Committed: 1}},
		"taken over": {job: usual().wrote("b", 2, 1, -1, Running).wrote("b", 2, 2, 6, Done).deleted(),
			want: Verdict{Committed: 1, TakenOver: 1}},
		"released and taken": {job: usual().wrote("a", 1, 3, 6, Open).wrote("b", 2, 1, -1, Running).wrote("b", 2, 2, -1, Done).deleted(),
			want: Verdict{Committed: 1}},
		"no outcome":     {job: usual(), breaks: []Rule{Lost}},
		"nothing at all": {job: newJob(), breaks: []Rule{Lost}},
		"deleted before": {job: usual().deleted().wrote("a", 1, 3, -1, Done), want: Verdict{Committed: 1}, breaks: []Rule{Lost}},
		"moved": {job: usual().replaced().deleted().wrote("b", 2, 1, -1, Running).wrote("b", 2, 2, -1, Done).deleted(),
			want: Verdict{Committed: 1, TakenOver: 1}},
		"moved once, deleted twice": {job: usual().replaced().deleted().deleted().wrote("a", 1, 3, -1, Done),
			want: Verdict{Committed: 1}, breaks: []Rule{Lost}},
		"deleted before moved": {job: usual().deleted().wrote("a", 1, 3, 6, Open).replaced().wrote("b", 2, 1, -1, Done),
			want: Verdict{Committed: 1}, breaks: []Rule{Lost}},
		"committed twice": {job: usual().wrote("a", 1, 3, -1, Done).wrote("a", 1, 4, -1, Done).deleted(), want: Verdict{Committed: 1},
			breaks: []Rule{Twice, Stale}},
		"given up": {job: usual().wrote("a", 1, 3, -1, Poison).deleted(), breaks: []Rule{Unjust}},
		"cancelled": {job: deaths(10).wrote("end", 11, 2, -1, Cancelled).deleted(), want: Verdict{TakenOver: 10},
			breaks: []Rule{Unjust}},
		"ten deaths":  {job: deaths(10).wrote("end", 11, 2, -1, Poison).deleted(), want: Verdict{TakenOver: 10, GivenUp: 1}},
		"nine deaths": {job: deaths(9).wrote("end", 10, 2, -1, Poison).deleted(), want: Verdict{TakenOver: 9}, breaks: []Rule{Unjust}},
		"ten, one released": {job: deaths(10).but(4, func(w *Write) { w.Status = Open }).wrote("end", 11, 2, -1, Poison).deleted(),
			want: Verdict{TakenOver: 9}, breaks: []Rule{Unjust}},
		"ten after progress": {job: deaths(11).but(0, stated).wrote("end", 12, 2, -1, Poison).deleted(),
			want: Verdict{TakenOver: 11, GivenUp: 1}},
		"nine after progress": {job: deaths(10).but(0, stated).wrote("end", 11, 2, -1, Poison).deleted(), want: Verdict{TakenOver: 10},
			breaks: []Rule{Unjust}},
		"old owner writes": {job: usual().wrote("b", 2, 1, -1, Running).wrote("a", 1, 3, 7, Running).wrote("a", 1, 4, -1, Done).deleted(),
			want: Verdict{Committed: 1, TakenOver: 1}, breaks: []Rule{Stale}},
		"written over": {job: usual().wrote("a", 1, 3, -1, Done).wrote("b", 2, 1, -1, Running).deleted(), want: Verdict{Committed: 1},
			breaks: []Rule{Stale}},
		"number again": {job: usual().wrote("a", 1, 2, 7, Running).wrote("a", 1, 3, -1, Done).deleted(), want: Verdict{Committed: 1},
			breaks: []Rule{Stale}},
		"generation skipped": {job: usual().wrote("b", 3, 1, -1, Running).wrote("b", 3, 2, -1, Done).deleted(),
			want: Verdict{Committed: 1, TakenOver: 1}, breaks: []Rule{Stale}},
		"generation back": {job: usual().wrote("a", 0, 3, -1, Done).deleted(), want: Verdict{Committed: 1}, breaks: []Rule{Stale}},
		"backwards": {job: usual().wrote("b", 2, 1, -1, Running).wrote("b", 2, 2, 5, Running).wrote("b", 2, 3, -1, Done).deleted(),
			want: Verdict{Committed: 1, TakenOver: 1}, breaks: []Rule{Backwards}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, rule := range row.breaks {
				row.want.Broken[rule]++
			}
			got := row.job.Judge()
			got = Verdict{Broken: got.Broken, Committed: got.Committed, GivenUp: got.GivenUp, TakenOver: got.TakenOver}
			if got != row.want {
				t.Errorf("Judge = %+v, want %+v", got, row.want)
			}
		})
	}
}

// The order is by ETags, and a write that they do not explain is a stale write.
func TestOrderIsTheStorages(t *testing.T) {
	j := usual().wrote("b", 2, 1, -1, Running).wrote("b", 2, 2, -1, Done).deleted()
	j.Writes[1], j.Writes[2] = j.Writes[2], j.Writes[1]
	if v := j.Judge(); v.IsBroken() {
		t.Errorf("writes recorded in another order = %+v, want nothing broken", v)
	}
	j = usual().wrote("a", 1, 3, -1, Done).deleted()
	j.Writes = append(j.Writes, Write{Token: "b", Generation: 2, Status: Running, Before: "1", After: "9"})
	if v := j.Judge(); v.Broken[Stale] != 1 {
		t.Errorf("two writes that replace the same one = %+v, want one of them stale", v)
	}
	j = usual().wrote("a", 1, 3, -1, Done).deleted()
	j.Writes[1].Unconditional = true
	if v := j.Judge(); v.Broken[Stale] != 1 {
		t.Errorf("a write without a condition = %+v, want it stale", v)
	}
	j = usual().wrote("a", 1, 3, -1, Done).deleted()
	j.Writes = append(j.Writes, Write{Status: Done, Unconditional: true, After: "9"})
	if v := j.Judge(); v.Broken[Stale] != 1 || v.Broken[Twice] != 1 {
		t.Errorf("a second commit that replaces any record = %+v, want it stale, and twice", v)
	}
}

func TestWrongResult(t *testing.T) {
	j := usual().wrote("a", 1, 3, -1, Done).deleted()
	j.Writes[2].Wrong = true
	if v := j.Judge(); v.Broken[Wrong] != 1 {
		t.Errorf("Judge = %+v, want a wrong result", v)
	}
}

// Tokens that were superseded write nothing.
func TestSupersededTokens(t *testing.T) {
	for name, test := range map[string]struct {
		tokens string // of the writes of one job, in their order
		want   int
	}{
		"one token":                   {"aaa", 0},
		"tokens one after another":    {"aabbc", 0},
		"the first again":             {"aabba", 1},
		"two that fight":              {"abab", 2},
		"the second writes after all": {"abcb", 1},
	} {
		j, generation, last := newJob(), 0, ""
		for i, token := range strings.Split(test.tokens, "") {
			if token != last {
				generation, last = generation+1, token
			}
			j.wrote(token, generation, i+1, -1, Running)
		}
		if got := j.Judge().Broken[Stale]; got != test.want {
			t.Errorf("%s: %d stale writes in %q, want %d", name, got, test.tokens, test.want)
		}
	}
}

// An operator may replace an outcome, and begin from nothing.
func TestOperator(t *testing.T) {
	for _, operator := range []bool{true, false} {
		var broken []Violation
		r := Record{}
		for _, w := range []Write{
			{Token: "a", Generation: 1, Number: 1, Status: Running, State: "s", Progress: 3},
			{Token: "a", Generation: 1, Number: 2, Status: Poison, State: "s", Progress: 3},
			{Token: "", Generation: 1, Status: Open, Progress: -1, Operator: operator},
			{Token: "b", Generation: 2, Number: 1, Status: Running, State: "t", Progress: 1},
			{Token: "b", Generation: 2, Number: 2, Status: Done, Progress: -1},
		} {
			broken = append(broken, r.Add(w)...)
		}
		if (len(broken) == 0) != operator || operator && r.Outcomes != 1 {
			t.Errorf("operator %t: broken %v with %d outcomes, want the operator's writes to break nothing, and one outcome", operator, broken,
				r.Outcomes)
		}
	}
}
