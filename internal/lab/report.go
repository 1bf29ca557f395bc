package lab

import (
	"fmt"
	"io"
	"slices"
	"strings"
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

// Report is the findings as a table.
type Report struct {
	findings Findings
	rows     []row
}

// NewReport judges the findings. Interval is the workers' checkpoint interval.
func NewReport(f Findings, interval time.Duration) Report {
	rows := slices.Concat(f.jobRows(), f.redoneRows(interval), f.timeRows())
	return Report{findings: f, rows: rows}
}

func (r Findings) jobRows() []row {
	return []row{
		{label: "No job is lost"},
		exactly("jobs committed", r.Committed, r.Jobs),
		exactly("jobs lost", r.Lost, 0),
		exactly("messages left on the queue", r.Messages, 0),
		{label: "One outcome per job"},
		exactly("jobs committed twice", r.CommittedTwice, 0),
		exactly("digests that are not the file's", r.WrongDigests, 0),
	}
}

func (r Findings) redoneRows(interval time.Duration) []row {
	rows := []row{{label: "Work is redone within bounds"}}
	if r.Evictions > 0 {
		rows = append(rows, atMost("hashed twice after a notice", r.TwiceAfterNotice, 0))
	}
	if r.Kills > 0 {
		rows = append(rows,
			atMost("hashed twice after a kill (unsaved then)", r.TwiceAfterKill, r.UnsavedAtKill),
			within("oldest work unsaved at a kill", Measured{r.OldestUnsaved, true}, interval+r.SlowestSave+atOnce))
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
	if !got.Known {
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

// Broken reports how many promises were broken. What the ledger could not see
// counts as one: a table with a blind spot proves nothing.
func (r Report) Broken() (n int) {
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

// Write prints the table, at most 78 columns wide.
func (r Report) Write(out io.Writer) {
	f := r.findings
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, on %s; %s with notice, %s\n", plural(f.Jobs, "job"), size(f.Bytes),
		plural(f.Workers, "VM"), plural(f.Evictions, "eviction"), plural(f.Kills, "kill"))
	fmt.Fprintf(&b, "\n%-44s%12s  %s\n%s\n", "promise", "measured", "promised", strings.Repeat("-", 78))
	isLate := false
	for _, row := range r.rows {
		if row.verdict == 0 {
			fmt.Fprintln(&b, row.label)
			continue
		}
		fmt.Fprintf(&b, "  %-42s%12s  %-13s %s\n", row.label, row.measured, row.promised, row.verdict)
		isLate = isLate || row.verdict == late
	}
	b.WriteString(strings.Repeat("-", 78) + "\n")
	r.writeNotes(&b, isLate)
	_, _ = io.WriteString(out, b.String()) // a terminal that is gone has nobody left to tell
}

func (r Report) writeNotes(b *strings.Builder, isLate bool) {
	if isLate {
		b.WriteString("late: over the promise by less than 1s, which a busy machine may cost;\nonly more than that fails the demo. Bytes and counts have no such margin.\n")
	}
	if n := r.findings.Unseen; n > 0 {
		fmt.Fprintf(b, "BROKEN: the ledger could not read %s.\n", plural(n, "write or message", "writes or messages"))
	}
	for _, missing := range r.findings.Missing {
		fmt.Fprintf(b, "not committed: %s\n", missing)
	}
}

// plural returns n and its noun; the plural is that with an s unless given.
func plural(n int, noun string, many ...string) string {
	switch {
	case n == 1:
	case len(many) > 0:
		noun = many[0]
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// rounded is a time for people: three digits or so.
func rounded(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(100 * time.Microsecond).String()
	}
}

// size is a number of bytes for people.
func size(bytes int64) string {
	const kib, mib = 1 << 10, 1 << 20
	switch {
	case bytes < kib:
		return fmt.Sprintf("%d B", bytes)
	case bytes < mib:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/kib)
	default:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/mib)
	}
}
