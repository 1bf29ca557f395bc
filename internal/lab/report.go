package lab

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Report is the findings as a table.
type Report struct {
	findings Findings
	settings Settings
	rows     []row
}

// Settings are what a demo ran with, for people.
type Settings struct {
	Workers, JobsAtOnce int
	Interval            time.Duration // between two checkpoints of a job
	Files               int           // real ones that the input is made of
	Bandwidth           string        // of each download
}

// NewReport judges the findings.
func NewReport(f Findings, s Settings) Report {
	rows := slices.Concat(f.jobRows(), f.oddRows(), f.staleRows(s.Interval), f.redoneRows(s.Interval), f.timeRows(), f.resumedRows())
	return Report{findings: f, settings: s, rows: rows}
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

// tableWidth is how wide the table is, in columns.
const tableWidth = 78

// Write prints the table.
func (r Report) Write(out io.Writer) {
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
	_, _ = io.WriteString(out, b.String()) // a terminal that is gone has nobody left to tell
}

func (r Report) writeSettings(b *strings.Builder) {
	f, s := r.findings, r.settings
	summary := fmt.Sprintf("%s, %s of %s, on %s; %s with notice, %s, %s; %s with %s at once, a checkpoint every %s, events polled every %s, downloads %s",
		plural(f.Jobs, "job"), size(f.Bytes), plural(s.Files, "real file"), plural(f.Workers, "VM"),
		plural(f.Evictions, "eviction"), plural(f.Kills, "kill"), plural(f.Frozen.VMs, "freeze"),
		plural(s.Workers, "worker"), plural(s.JobsAtOnce, "job"), s.Interval, pollEvery, s.Bandwidth)
	b.WriteString(strings.Join(wrap(summary, tableWidth), "\n") + "\n")
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
	for _, p := range r.findings.Poison {
		lines := wrap(fmt.Sprintf("poison queue: %s: %s", cmp.Or(p.ID, "(no job)"), p.Reason), tellWidth)
		b.WriteString(strings.Join(lines, "\n    ") + "\n")
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
