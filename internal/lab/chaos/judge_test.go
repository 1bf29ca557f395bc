package chaos

import (
	"fmt"
	"testing"
	"time"
)

// history is what happened to a job, in the order of the storage.
type history struct {
	writes []write
	facts  jobFacts
}

// began is when every job of these tests was put.
var began = time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)

// at is a moment of a test.
func at(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }

// wrote adds a write that follows the last one.
func (h *history) wrote(token string, generation, number, step int, status string) *history {
	w := write{
		vm: "vm-" + token, token: token, generation: generation, number: number, step: step, status: status,
		after: fmt.Sprint(len(h.writes) + 1), arrived: at(len(h.writes)), right: status == statusDone,
	}
	if len(h.writes) > 0 {
		w.before = h.writes[len(h.writes)-1].after
	}
	h.writes = append(h.writes, w)
	return h
}

// deleted adds the deletion of the job's message.
func (h *history) deleted() *history {
	h.facts.deletions = append(h.facts.deletions, at(len(h.writes)).Add(-time.Millisecond))
	return h
}

// over returns what is known in the end.
func (h *history) over() *jobFacts {
	h.facts.put, h.facts.writes = began, h.writes
	for _, w := range h.writes {
		if final(w.status) && h.facts.ended.IsZero() {
			h.facts.ended = w.arrived
		}
	}
	return &h.facts
}

// deaths is a job of which so many claims ended without a word, and that is claimed
// once more.
func deaths(n int) *history {
	h := new(history)
	for i := range n + 1 {
		token := fmt.Sprint(i)
		if i == n {
			token = "end"
		}
		h.wrote(token, i+1, 1, -1, "running")
	}
	return h
}

// but changes a write, and what is kept from it in those that follow.
func (h *history) but(i int, change func(*write)) *history {
	change(&h.writes[i])
	for j := i + 1; j < len(h.writes); j++ {
		h.writes[j].state = h.writes[i].state
	}
	return h
}

func usual() *history {
	return new(history).wrote("a", 1, 1, 3, "running").wrote("a", 1, 2, 6, "running")
}

// A failure is counted once, by whichever claim; what follows keeps the number.
func TestFailuresAreFound(t *testing.T) {
	h := usual().wrote("b", 2, 1, -1, "running").wrote("b", 2, 2, -1, statusDone).deleted()
	h.writes[1].failures, h.writes[2].failures = 1, 1
	if v := judge(h.over()); v.failures != 1 || !v.broken() {
		t.Errorf("judge = %+v, want one failure, and that it breaks a promise", v)
	}
}

// TestJudge has a history for each promise that can be broken, and those that
// break none.
func TestJudge(t *testing.T) {
	for name, row := range map[string]struct {
		history *history
		want    verdict // of what is broken, and how it ended
	}{
		"done":                {usual().wrote("a", 1, 3, -1, statusDone).deleted(), verdict{committed: 1}},
		"taken over":          {usual().wrote("b", 2, 1, -1, "running").wrote("b", 2, 2, 6, statusDone).deleted(), verdict{committed: 1, taken: 1}},
		"released and taken":  {usual().wrote("a", 1, 3, 6, "open").wrote("b", 2, 1, -1, "running").wrote("b", 2, 2, -1, statusDone).deleted(), verdict{committed: 1}},
		"no outcome":          {usual(), verdict{lost: 1}},
		"nothing at all":      {new(history), verdict{lost: 1}},
		"deleted before":      {usual().deleted().wrote("a", 1, 3, -1, statusDone), verdict{committed: 1, lost: 1}},
		"committed twice":     {usual().wrote("a", 1, 3, -1, statusDone).wrote("a", 1, 4, -1, statusDone).deleted(), verdict{committed: 1, twice: 1, stale: 1}},
		"given up":            {usual().wrote("a", 1, 3, -1, statusPoison).deleted(), verdict{unjust: 1}},
		"cancelled":           {deaths(10).wrote("end", 11, 2, -1, statusCancelled).deleted(), verdict{taken: 10, unjust: 1}},
		"ten deaths":          {deaths(10).wrote("end", 11, 2, -1, statusPoison).deleted(), verdict{taken: 10, givenUp: 1}},
		"nine deaths":         {deaths(9).wrote("end", 10, 2, -1, statusPoison).deleted(), verdict{taken: 9, unjust: 1}},
		"ten, one released":   {deaths(10).but(4, func(w *write) { w.status = "open" }).wrote("end", 11, 2, -1, statusPoison).deleted(), verdict{taken: 9, unjust: 1}},
		"ten after progress":  {deaths(11).but(0, func(w *write) { w.state = "s" }).wrote("end", 12, 2, -1, statusPoison).deleted(), verdict{taken: 11, givenUp: 1}},
		"nine after progress": {deaths(10).but(0, func(w *write) { w.state = "s" }).wrote("end", 11, 2, -1, statusPoison).deleted(), verdict{taken: 10, unjust: 1}},
		"old owner writes":    {usual().wrote("b", 2, 1, -1, "running").wrote("a", 1, 3, 7, "running").wrote("a", 1, 4, -1, statusDone).deleted(), verdict{committed: 1, taken: 1, stale: 1}},
		"written over":        {usual().wrote("a", 1, 3, -1, statusDone).wrote("b", 2, 1, -1, "running").deleted(), verdict{committed: 1, stale: 1}},
		"number again":        {usual().wrote("a", 1, 2, 7, "running").wrote("a", 1, 3, -1, statusDone).deleted(), verdict{committed: 1, stale: 1}},
		"generation left out": {usual().wrote("b", 3, 1, -1, "running").wrote("b", 3, 2, -1, statusDone).deleted(), verdict{committed: 1, taken: 1, stale: 1}},
		"backwards":           {usual().wrote("b", 2, 1, -1, "running").wrote("b", 2, 2, 5, "running").wrote("b", 2, 3, -1, statusDone).deleted(), verdict{committed: 1, taken: 1, backwards: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(row.history.over())
			for what, pair := range map[string][2]int{
				"committed": {got.committed, row.want.committed}, "lost": {got.lost, row.want.lost}, "twice": {got.twice, row.want.twice},
				"stale": {got.stale, row.want.stale}, "given up": {got.givenUp, row.want.givenUp}, "without cause": {got.unjust, row.want.unjust}, "backwards": {got.backwards, row.want.backwards},
				"wrong": {got.wrong, 0}, "taken over": {got.taken, row.want.taken},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s = %d, want %d", what, pair[0], pair[1])
				}
			}
		})
	}
}

// What the ETags say counts, not the order in which replies came by; and what they
// do not explain is a stale write.
func TestOrderIsTheStorages(t *testing.T) {
	h := usual().wrote("b", 2, 1, -1, "running").wrote("b", 2, 2, -1, statusDone).deleted()
	h.writes[1], h.writes[2] = h.writes[2], h.writes[1]
	if v := judge(h.over()); v.broken() {
		t.Errorf("replies in another order = %+v, want nothing broken", v)
	}
	h = usual().wrote("a", 1, 3, -1, statusDone).deleted()
	h.writes = append(h.writes, write{token: "b", generation: 2, status: "running", before: "1", after: "9"})
	if v := judge(h.over()); v.stale != 1 {
		t.Errorf("two writes that follow the same one = %+v, want one of them stale", v)
	}
	h = usual().wrote("a", 1, 3, -1, statusDone).deleted()
	h.writes[1].unconditional = true
	if v := judge(h.over()); v.stale != 1 {
		t.Errorf("a write under no condition = %+v, want it stale", v)
	}
}

func TestWrongResult(t *testing.T) {
	h := usual().wrote("a", 1, 3, -1, statusDone).deleted()
	h.writes[2].right = false
	if v := judge(h.over()); v.wrong != 1 {
		t.Errorf("judge = %+v, want a wrong result", v)
	}
}
