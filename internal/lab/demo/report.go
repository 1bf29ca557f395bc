package demo

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/text"
)

// Limits on the times that are promised.
const (
	pollInterval = time.Second           // between two requests for events
	atOnce       = 50 * time.Millisecond // time that a process needs to act
	releaseTime  = 2 * time.Second       // for small states on a fast storage
	noise        = time.Second           // on a machine that is busy with other things
)

// report is the findings as a table, below a summary of the demo.
type report struct {
	findings findings
	summary  string
	rows     []text.Promise
}

// newReport compares the findings with the promises. interval is the time between two checkpoints of a job.
func newReport(f findings, interval time.Duration, summary string) report {
	rows := slices.Concat(f.jobRows(), f.badMessageRows(), f.staleRows(interval), f.redoneRows(interval), f.timeRows(), f.resumedRows())
	return report{findings: f, summary: summary, rows: rows}
}

func (f findings) jobRows() []text.Promise {
	rows := []text.Promise{
		{Label: "No job is lost"},
		text.Exactly("jobs committed", f.Committed, f.Jobs),
		text.Exactly("jobs lost", f.Lost, 0),
		text.Exactly("messages left on the queue", f.Messages, 0),
		{Label: "One outcome per job"},
		text.Exactly("jobs committed twice", f.CommittedTwice, 0),
		text.Exactly("digests that are not the input's", f.WrongDigests, 0),
		text.Exactly("failures counted against a job", f.Miscounted, 0),
	}
	if f.Duplicates > 0 {
		rows = append(rows, text.Exactly("jobs put twice, duplicate absorbed", f.Absorbed, f.Duplicates))
	}
	return rows
}

func (f findings) badMessageRows() []text.Promise {
	if len(f.BadMessages) == 0 {
		return nil
	}
	rows := []text.Promise{{Label: "What cannot be processed is in the poison queue, with a reason"}}
	for _, b := range f.BadMessages {
		measured := "not kept"
		if b.Kept {
			measured = "kept"
		}
		rows = append(rows, text.Judged(b.Label, measured, "kept", b.Kept))
	}
	return rows
}

func (f findings) staleRows(interval time.Duration) []text.Promise {
	rows := []text.Promise{
		{Label: "A stale owner writes nothing"},
		text.Exactly("stale writes that took effect", f.StaleWrites, 0),
	}
	if f.Frozen.VMs == 0 {
		return rows
	}
	return append(rows,
		atLeast("writes refused to a worker that was frozen", f.Frozen.Refused, 1),
		text.Exactly("taken-over jobs that it stopped", f.Frozen.Fenced, f.Frozen.Held),
		within("thawed -> all of them stopped", f.Frozen.ThawedToFenced, interval+f.SlowestSave+atOnce))
}

func (f findings) redoneRows(interval time.Duration) []text.Promise {
	rows := []text.Promise{
		{Label: "Work is redone within bounds"},
		text.Exactly("states behind the one they replaced", f.Backwards, 0),
	}
	if f.Evictions > 0 {
		rows = append(rows, atMost("hashed twice after a notice", f.TwiceAfterNotice.Bytes, f.TwiceAfterNotice.Limit))
	}
	if f.Kills > 0 {
		rows = append(rows,
			atMost("hashed twice after a kill (unsaved then)", f.TwiceAfterKill.Bytes, f.TwiceAfterKill.Limit),
			within("oldest work unsaved at a kill", measuredTime{f.OldestUnsaved, 1, 0}, interval+f.SlowestSave+atOnce))
	}
	if f.Frozen.VMs > 0 {
		rows = append(rows, atMost("hashed twice after a freeze (not saved)", f.TwiceAfterFreeze.Bytes, f.TwiceAfterFreeze.Limit))
	}
	if f.Duplicates > 0 {
		duplicate := within("longest work on a duplicate", f.LongestDuplicate, interval+f.SlowestSave+atOnce)
		if !f.LongestDuplicate.Known() { // detected before its handler was started
			duplicate.Measured, duplicate.Verdict = "none", text.Kept
		}
		rows = append(rows, duplicate)
	}
	return append(rows, atMost("hashed twice without cause", f.TwiceOtherwise, 0))
}

func (f findings) timeRows() []text.Promise {
	if f.Evictions == 0 {
		return nil
	}
	return []text.Promise{
		{Label: "A notice is acted on at once"},
		within("announced -> work stopped (1 poll)", f.AnnouncedToStopped, pollInterval+atOnce),
		within("seen by the VM -> work stopped", f.ServedToStopped, atOnce),
		within("seen by the VM -> all jobs released", f.ServedToReleased, releaseTime),
	}
}

// resumedRows report when jobs were resumed. The wait depends on the rest of the queue,
// so only the resume is promised.
func (f findings) resumedRows() []text.Promise {
	var rows []text.Promise
	add := func(times int, label string, got measuredTime, promised string) {
		if times > 0 {
			rows = append(rows, inTurn(label, got, promised))
		}
	}
	add(f.Evictions, "eviction -> all its jobs resumed elsewhere", f.NoticeToResumed, "in turn")
	add(f.Kills, "kill -> all its jobs resumed elsewhere", f.KillToResumed, "30s + turn")
	add(f.Frozen.VMs, "freeze -> all its jobs resumed elsewhere", f.FreezeToResumed, "30s + turn")
	if len(rows) > 0 {
		rows = slices.Insert(rows, 0, text.Promise{Label: "Other workers resume the jobs of a lost VM"})
	}
	return rows
}

func inTurn(label string, got measuredTime, promised string) text.Promise {
	if !got.Known() {
		return text.Judged(label, "not seen", promised, false)
	}
	return text.Judged(label, text.Duration(got.Duration), promised, true)
}

func atLeast(label string, got, limit int) text.Promise {
	return text.Judged(label, fmt.Sprint(got), fmt.Sprintf(">= %d", limit), got >= limit)
}

func atMost(label string, got, limit int64) text.Promise {
	promised := text.Size(limit)
	if limit > 0 {
		promised = "<= " + promised
	}
	return text.Judged(label, text.Size(got), promised, got <= limit)
}

func within(label string, got measuredTime, limit time.Duration) text.Promise {
	promised := "<= " + text.Duration(limit)
	if !got.Known() {
		return text.Judged(label, "not seen", promised, false)
	}
	p := text.Judged(label, text.Duration(got.Duration), promised, got.Duration <= limit+noise)
	if got.Duration > limit && p.Verdict == text.Kept {
		p.Verdict = text.Late
	}
	return p
}

// Broken returns how many promises were broken. Writes and messages that could
// not be read count as one: a table that misses something proves nothing.
func (r report) Broken() (n int) {
	for _, row := range r.rows {
		if row.Verdict == text.Broken {
			n++
		}
	}
	if r.findings.Unseen > 0 {
		n++
	}
	return n
}

// Write prints the table.
func (r report) Write(out io.Writer) {
	var b strings.Builder
	b.WriteString(strings.Join(text.Wrap(r.summary, text.TableWidth), "\n") + "\n\n" + text.Table(r.rows))
	r.writeNotes(&b)
	_, _ = io.WriteString(out, b.String()) // fails only if the terminal is gone
}

func (r report) writeNotes(b *strings.Builder) {
	if slices.ContainsFunc(r.rows, func(p text.Promise) bool { return p.Verdict == text.Late }) {
		b.WriteString("late: over the promise by less than 1s, which a busy machine may cost;\nonly more than that fails the demo. Bytes and " +
			"counts have no such margin.\n")
	}
	if n := r.findings.Unseen; n > 0 {
		fmt.Fprintf(b, "BROKEN: the recorder could not read %s.\n", text.Plural(n, "write or message", "writes or messages"))
	}
	for _, missing := range r.findings.Missing {
		fmt.Fprintf(b, "not committed: %s\n", missing)
	}
	for _, p := range r.findings.Poison {
		lines := text.Wrap(fmt.Sprintf("poison queue: %s: %s", cmp.Or(p.ID, "(no job)"), p.Reason), text.Width)
		b.WriteString(strings.Join(lines, "\n    ") + "\n")
	}
}
