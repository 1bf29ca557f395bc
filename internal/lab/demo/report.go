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

// promiseVerdict says whether a promise was kept.
type promiseVerdict int

const (
	kept   promiseVerdict = iota + 1
	late                  // a time exceeded by less than noise: shown, no failure
	broken                // the demo fails
)

func (v promiseVerdict) String() string { return [...]string{"", "ok", "late", "BROKEN"}[v] }

// row is one promise and its measurement. A row without a verdict is a heading.
type row struct {
	label, measured, promised string
	verdict                   promiseVerdict
}

// report is the findings as a table.
type report struct {
	findings findings
	settings settings
	rows     []row
}

// settings are the configuration of a demo as the report shows it.
type settings struct {
	Workers, JobsAtOnce int
	Interval            time.Duration // between two checkpoints of a job
	Files               int           // real blobs that the input is made of
	Bandwidth           string        // of each download
}

// newReport compares the findings with the promises.
func newReport(f findings, s settings) report {
	rows := slices.Concat(f.jobRows(), f.badMessageRows(), f.staleRows(s.Interval), f.redoneRows(s.Interval), f.timeRows(), f.resumedRows())
	return report{findings: f, settings: s, rows: rows}
}

func (f findings) jobRows() []row {
	rows := []row{
		{label: "No job is lost"},
		exactly("jobs committed", f.Committed, f.Jobs),
		exactly("jobs lost", f.Lost, 0),
		exactly("messages left on the queue", f.Messages, 0),
		{label: "One outcome per job"},
		exactly("jobs committed twice", f.CommittedTwice, 0),
		exactly("digests that are not the input's", f.WrongDigests, 0),
		exactly("failures counted against a job", f.Miscounted, 0),
	}
	if f.Duplicates > 0 {
		rows = append(rows, exactly("jobs put twice, duplicate absorbed", f.Absorbed, f.Duplicates))
	}
	return rows
}

func (f findings) badMessageRows() []row {
	if len(f.BadMessages) == 0 {
		return nil
	}
	rows := []row{{label: "What cannot be processed is in the poison queue, with a reason"}}
	for _, b := range f.BadMessages {
		measured := "not kept"
		if b.Kept {
			measured = "kept"
		}
		rows = append(rows, row{b.Label, measured, "kept", verdictOf(b.Kept)})
	}
	return rows
}

func (f findings) staleRows(interval time.Duration) []row {
	rows := []row{
		{label: "A stale owner writes nothing"},
		exactly("stale writes that took effect", f.StaleWrites, 0),
	}
	if f.Frozen.VMs == 0 {
		return rows
	}
	return append(rows,
		atLeast("writes refused to a worker that was frozen", f.Frozen.Refused, 1),
		exactly("taken-over jobs that it stopped", f.Frozen.Fenced, f.Frozen.Held),
		within("thawed -> all of them stopped", f.Frozen.ThawedToFenced, interval+f.SlowestSave+atOnce))
}

func (f findings) redoneRows(interval time.Duration) []row {
	rows := []row{
		{label: "Work is redone within bounds"},
		exactly("states behind the one they replaced", f.Backwards, 0),
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
			duplicate.measured, duplicate.verdict = "none", kept
		}
		rows = append(rows, duplicate)
	}
	return append(rows, atMost("hashed twice without cause", f.TwiceOtherwise, 0))
}

func (f findings) timeRows() []row {
	if f.Evictions == 0 {
		return nil
	}
	return []row{
		{label: "A notice is acted on at once"},
		within("announced -> work stopped (1 poll)", f.AnnouncedToStopped, pollInterval+atOnce),
		within("seen by the VM -> work stopped", f.ServedToStopped, atOnce),
		within("seen by the VM -> all jobs released", f.ServedToReleased, releaseTime),
	}
}

// resumedRows report when jobs were resumed. The wait depends on the rest of the queue,
// so only the resume is promised.
func (f findings) resumedRows() []row {
	var rows []row
	add := func(times int, label string, got measuredTime, promised string) {
		if times > 0 {
			rows = append(rows, inTurn(label, got, promised))
		}
	}
	add(f.Evictions, "eviction -> all its jobs resumed elsewhere", f.NoticeToResumed, "in turn")
	add(f.Kills, "kill -> all its jobs resumed elsewhere", f.KillToResumed, "30s + turn")
	add(f.Frozen.VMs, "freeze -> all its jobs resumed elsewhere", f.FreezeToResumed, "30s + turn")
	if len(rows) > 0 {
		rows = slices.Insert(rows, 0, row{label: "Other workers resume the jobs of a lost VM"})
	}
	return rows
}

func inTurn(label string, got measuredTime, promised string) row {
	if !got.Known() {
		return row{label, "not seen", promised, broken}
	}
	return row{label, text.Duration(got.Duration), promised, kept}
}

func atLeast(label string, got, limit int) row {
	return row{label, fmt.Sprint(got), fmt.Sprintf(">= %d", limit), verdictOf(got >= limit)}
}

func exactly(label string, got, want int) row {
	return row{label, fmt.Sprint(got), fmt.Sprint(want), verdictOf(got == want)}
}

func atMost(label string, got, limit int64) row {
	promised := text.Size(limit)
	if limit > 0 {
		promised = "<= " + promised
	}
	return row{label, text.Size(got), promised, verdictOf(got <= limit)}
}

func within(label string, got measuredTime, limit time.Duration) row {
	r := row{label, "not seen", "<= " + text.Duration(limit), broken}
	if !got.Known() {
		return r
	}
	r.measured = text.Duration(got.Duration)
	switch {
	case got.Duration <= limit:
		r.verdict = kept
	case got.Duration <= limit+noise:
		r.verdict = late
	}
	return r
}

func verdictOf(ok bool) promiseVerdict {
	if ok {
		return kept
	}
	return broken
}

// Broken returns how many promises were broken. Writes and messages that could
// not be read count as one: a table that misses something proves nothing.
func (r report) Broken() (n int) {
	for _, row := range r.rows {
		if row.verdict == broken {
			n++
		}
	}
	if r.findings.Unseen > 0 {
		n++
	}
	return n
}

// tableWidth is the width of the table, in columns.
const tableWidth = 78

// Write prints the table.
func (r report) Write(out io.Writer) {
	var b strings.Builder
	r.writeSettings(&b)
	fmt.Fprintf(&b, "\n%-44s%12s  %s\n%s\n", "promise", "measured", "promised", strings.Repeat("-", tableWidth))
	isLate := false
	for _, row := range r.rows {
		if row.verdict == 0 {
			fmt.Fprintln(&b, row.label)
			continue
		}
		fmt.Fprintf(&b, "  %-42s%12s  %-13s %s\n", row.label, row.measured, row.promised, row.verdict)
		isLate = isLate || row.verdict == late
	}
	b.WriteString(strings.Repeat("-", tableWidth) + "\n")
	r.writeNotes(&b, isLate)
	_, _ = io.WriteString(out, b.String()) // fails only if the terminal is gone
}

func (r report) writeSettings(b *strings.Builder) {
	f, s := r.findings, r.settings
	summary := fmt.Sprintf("%s, %s of %s, on %s; %s with notice, %s, %s; %s with %s at a time, a checkpoint every %s, events polled every "+
		"%s, downloads %s",
		text.Plural(f.Jobs, "job"), text.Size(f.Bytes), text.Plural(s.Files, "real file"), text.Plural(f.Workers, "VM"),
		text.Plural(f.Evictions, "eviction"), text.Plural(f.Kills, "kill"), text.Plural(f.Frozen.VMs, "freeze"),
		text.Plural(s.Workers, "worker"), text.Plural(s.JobsAtOnce, "job"), s.Interval, pollInterval, s.Bandwidth)
	b.WriteString(strings.Join(text.Wrap(summary, tableWidth), "\n") + "\n")
}

func (r report) writeNotes(b *strings.Builder, isLate bool) {
	if isLate {
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
