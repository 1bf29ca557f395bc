package lab

import (
	"fmt"
	"slices"
	"time"
)

// Bounds on the times that are promised.
const (
	pollEvery   = time.Second           // how often a worker asks for events
	atOnce      = 50 * time.Millisecond // what a process needs to act
	releaseTime = 2 * time.Second       // for small states on a fast storage
	noise       = time.Second           // on a machine that is busy with other things
)

// verdict says whether a promise was kept.
type verdict int

const (
	kept   verdict = iota + 1
	late           // a time by less than noise: shown, no failure
	broken         // the demo fails
)

var verdictNames = [...]string{"", "ok", "late", "BROKEN"}

func (v verdict) String() string { return verdictNames[v] }

// row is one promise and what was measured. A row without a verdict is a heading.
type row struct {
	label, measured, promised string
	verdict                   verdict
}

func (r Findings) jobRows() []row {
	rows := []row{
		{label: "No job is lost"},
		exactly("jobs committed", r.Committed, r.Jobs),
		exactly("jobs lost", r.Lost, 0),
		exactly("messages left on the queue", r.Messages, 0),
		{label: "One outcome per job"},
		exactly("jobs committed twice", r.CommittedTwice, 0),
		exactly("digests that are not the input's", r.WrongDigests, 0),
	}
	if r.Duplicates > 0 {
		rows = append(rows, exactly("jobs put twice, duplicate absorbed", r.Absorbed, r.Duplicates))
	}
	return rows
}

func (r Findings) oddRows() []row {
	if len(r.Odd) == 0 {
		return nil
	}
	rows := []row{{label: "What cannot be done is kept in the poison queue, with its reason"}}
	for _, odd := range r.Odd {
		rows = append(rows, row{odd.Label, yesNo(odd.Kept), "kept", verdictOf(odd.Kept)})
	}
	return rows
}

func yesNo(kept bool) string {
	if kept {
		return "kept"
	}
	return "not kept"
}

func (r Findings) staleRows(interval time.Duration) []row {
	rows := []row{
		{label: "A stale owner writes nothing"},
		exactly("stale writes that took effect", r.StaleWrites, 0),
	}
	if r.Frozen.VMs == 0 {
		return rows
	}
	return append(rows,
		atLeast("writes refused to a worker that was frozen", r.Frozen.Refused, 1),
		exactly("jobs that it let go, taken over meanwhile", r.Frozen.Fenced, r.Frozen.Held),
		within("thawed -> all of them let go", r.Frozen.ThawedToFenced, interval+r.SlowestSave+atOnce))
}

func (r Findings) redoneRows(interval time.Duration) []row {
	rows := []row{{label: "Work is redone within bounds"}}
	if r.Evictions > 0 {
		rows = append(rows, atMost("hashed twice after a notice", r.TwiceAfterNotice.Bytes, r.TwiceAfterNotice.Limit))
	}
	if r.Kills > 0 {
		rows = append(rows,
			atMost("hashed twice after a kill (unsaved then)", r.TwiceAfterKill.Bytes, r.TwiceAfterKill.Limit),
			within("oldest work unsaved at a kill", Measured{r.OldestUnsaved, 1, 0}, interval+r.SlowestSave+atOnce))
	}
	if r.Frozen.VMs > 0 {
		rows = append(rows, atMost("hashed twice after a freeze (not saved)", r.TwiceAfterFreeze.Bytes, r.TwiceAfterFreeze.Limit))
	}
	if r.Duplicates > 0 {
		duplicate := within("longest work on a duplicate", r.LongestDuplicate, interval+r.SlowestSave+atOnce)
		if !r.LongestDuplicate.Known() { // found out before its handler was started
			duplicate.measured, duplicate.verdict = "none", kept
		}
		rows = append(rows, duplicate)
	}
	return append(rows, atMost("hashed twice without cause", r.TwiceOtherwise, 0))
}

func (r Findings) timeRows() []row {
	if r.Evictions == 0 {
		return nil
	}
	return []row{
		{label: "A notice is acted on at once"},
		within("announced -> work stopped (1 poll)", r.AnnouncedToStopped, pollEvery+atOnce),
		within("seen by the VM -> work stopped", r.ServedToStopped, atOnce),
		within("seen by the VM -> all jobs released", r.ServedToReleased, releaseTime),
	}
}

// resumedRows say when jobs went on. How long they wait in the queue depends on
// what else is in it, so that only their going on is promised.
func (r Findings) resumedRows() []row {
	var rows []row
	add := func(times int, label string, got Measured, promised string) {
		if times > 0 {
			rows = append(rows, inTurn(label, got, promised))
		}
	}
	add(r.Evictions, "eviction -> all its jobs resumed elsewhere", r.NoticeToResumed, "in turn")
	add(r.Kills, "kill -> all its jobs resumed elsewhere", r.KillToResumed, "30s + turn")
	add(r.Frozen.VMs, "freeze -> all its jobs resumed elsewhere", r.FreezeToResumed, "30s + turn")
	if len(rows) > 0 {
		rows = slices.Insert(rows, 0, row{label: "Others go on with the jobs of a lost VM"})
	}
	return rows
}

func inTurn(label string, got Measured, promised string) row {
	if !got.Known() {
		return row{label, "not seen", promised, broken}
	}
	return row{label, rounded(got.Duration), promised, kept}
}

func atLeast(label string, got, limit int) row {
	return row{label, fmt.Sprint(got), fmt.Sprintf(">= %d", limit), verdictOf(got >= limit)}
}

func exactly(label string, got, want int) row {
	return row{label, fmt.Sprint(got), fmt.Sprint(want), verdictOf(got == want)}
}

func atMost(label string, got, limit int64) row {
	promised := size(limit)
	if limit > 0 {
		promised = "<= " + promised
	}
	return row{label, size(got), promised, verdictOf(got <= limit)}
}

func within(label string, got Measured, limit time.Duration) row {
	r := row{label, "not seen", "<= " + rounded(limit), broken}
	if !got.Known() {
		return r
	}
	r.measured = rounded(got.Duration)
	switch {
	case got.Duration <= limit:
		r.verdict = kept
	case got.Duration <= limit+noise:
		r.verdict = late
	}
	return r
}

func verdictOf(ok bool) verdict {
	if ok {
		return kept
	}
	return broken
}
