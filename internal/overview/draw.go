package overview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/plaintext"
	"github.com/spotworker/spotworker/internal/table"
)

// Rows is how many workers and how many jobs are drawn where the height has no limit.
const Rows = 20

// Draw draws a snapshot: problems, counts, workers, running jobs. A width or height of 0
// is no limit. Of tables that do not fit it leaves out rows, and says how many.
func Draw(s Snapshot, width, height int) []string {
	var lines []string
	for _, problem := range s.Problems() {
		lines = append(lines, Wrap("! ", problem, width)...)
	}
	for _, row := range s.summary() {
		lines = append(lines, Wrap(fmt.Sprintf("%-9s", row[0]), row[1], width)...)
	}
	workers, jobs := WorkerTable(s.Workers, s.At), JobTable(s.Jobs.Running)
	forWorkers, forJobs := Rows, Rows
	if height > 0 {
		// A blank line and a heading for each table, and a line for what was left out.
		forWorkers, forJobs = share(height-len(lines)-6, workers.Len(), jobs.Len())
	}
	lines = append(lines, section(workers, forWorkers, "worker", width)...)
	lines = append(lines, section(jobs, forJobs, "running job", width)...)
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	return lines
}

// share divides rows between two tables: half each, and what one does not need goes to
// the other.
func share(rows, a, b int) (forA, forB int) {
	rows = max(rows, 2)
	forA = min(a, max(rows/2, rows-b))
	return forA, min(b, rows-forA)
}

// section returns a table below a blank line, with at most that many rows.
func section(t *table.Table, rows int, what string, width int) []string {
	if t.Len() == 0 {
		return nil
	}
	lines := append([]string{""}, t.Lines(width)...)
	if left := t.Len() - rows; left > 0 {
		lines = append(lines[:len(lines)-left], table.Cut("and "+count(left, "more "+what, "more "+what+"s"), width))
	}
	return lines
}

// summary returns the rows above the tables.
func (s *Snapshot) summary() [][2]string {
	rows := [][2]string{{"jobs", s.jobs()}}
	if s.Has(PartQueues) {
		rows = append(rows, [2]string{"messages", fmt.Sprintf("%s on %s, %s on the on-demand queue, %s on the poison queue",
			number(s.Queues.Jobs.Messages), s.Queues.Jobs.Name, number(s.Queues.OnDemand.Messages), number(s.Queues.Poison.Messages))})
	}
	if s.Has(PartWorkers) {
		rows = append(rows, [2]string{"workers", s.fleet()})
	}
	if events := s.events(); events != "" {
		rows = append(rows, [2]string{"events", events})
	}
	return rows
}

// jobs counts the jobs.
func (s *Snapshot) jobs() string {
	var parts []string
	if s.Has(PartQueues) && s.Has(PartWorkers) {
		parts = append(parts, "about "+number(s.Waiting())+" waiting")
	}
	if !s.Has(PartJobs) {
		return strings.Join(append(parts, "the others are not known"), ", ")
	}
	n := s.Jobs.ByStatus
	parts = append(parts, number(n[client.StatusRunning])+" running")
	for _, status := range []client.Status{client.StatusOpen, client.StatusPoison, client.StatusCancelled} {
		if n[status] > 0 {
			parts = append(parts, number(n[status])+" "+string(status))
		}
	}
	return strings.Join(append(parts, fmt.Sprintf("%s done (%s in the last hour)", number(n[client.StatusDone]), number(s.Jobs.DoneRecently))), ", ")
}

// fleet counts the workers by life and state.
func (s *Snapshot) fleet() string {
	states, jobs := map[string]int{}, 0
	for _, w := range s.Workers {
		if w.Life == Alive {
			states[w.State]++
			jobs += w.Jobs
		}
	}
	var parts []string
	for state, n := range states {
		parts = append(parts, fmt.Sprintf("%s %s", number(n), state))
	}
	slices.Sort(parts)
	text := number(s.Count(Alive)) + " alive"
	if len(parts) > 0 {
		text += fmt.Sprintf(" (%s) with %s", strings.Join(parts, ", "), count(jobs, "job", "jobs"))
	}
	return fmt.Sprintf("%s, %s silent, %s ended", text, number(s.Count(Silent)), number(s.Count(Ended)))
}

// events says which scheduled events came within the last hour, and how the drains went.
func (s *Snapshot) events() string {
	types := map[string]int{}
	var slowest time.Duration
	left := 0
	for _, w := range s.Evictions() {
		types[w.LastEvent.Type]++
		if d := w.LastDrain; d != nil && !d.EndedAt.Before(w.LastEvent.SeenAt) {
			slowest, left = max(slowest, d.Took), left+d.Left
		}
	}
	if len(types) == 0 {
		return ""
	}
	var parts []string
	for kind, n := range types {
		parts = append(parts, fmt.Sprintf("%s %s", number(n), kind))
	}
	slices.Sort(parts)
	text := strings.Join(parts, ", ") + " in the last hour"
	if slowest > 0 {
		text += fmt.Sprintf("; slowest drain %s", slowest.Round(time.Millisecond))
	}
	if left > 0 {
		text += fmt.Sprintf("; %s not handed over in time", count(left, "job was", "jobs were"))
	}
	return text
}

// WorkerTable returns the workers as a table. now is this machine's clock.
func WorkerTable(workers []Worker, now time.Time) *table.Table {
	t := table.New(
		table.Column{Name: "WORKER", Least: 12}, table.Column{Name: "STATE", Drop: 1}, table.Column{Name: "JOBS", Right: true},
		table.Column{Name: "HEARTBEAT", Right: true, Drop: 2}, table.Column{Name: "UP", Right: true, Drop: 5},
		table.Column{Name: "VERSION", Drop: 4, Least: 8}, table.Column{Name: "LAST EVENT", Drop: 3, Least: 12},
	)
	for _, w := range workers {
		state, up := w.State, ""
		switch {
		case w.Life != Alive:
			state = w.Life.String()
		case w.Asked != "":
			state += " (" + w.Asked + ")"
		}
		if w.Life == Alive && !w.StartedAt.IsZero() {
			up = Span(now.Sub(w.StartedAt))
		}
		t.Add(w.Name, state, number(w.Jobs), Span(w.Age)+" ago", up, w.Version, lastEvent(w, now))
	}
	return t
}

// lastEvent describes the last scheduled event of a worker's VM, and the drain after it.
func lastEvent(w Worker, now time.Time) string {
	if w.LastEvent == nil {
		return ""
	}
	text := fmt.Sprintf("%s %s ago", w.LastEvent.Type, Span(now.Sub(w.LastEvent.SeenAt)))
	if d := w.LastDrain; d != nil && !d.EndedAt.Before(w.LastEvent.SeenAt) {
		text += fmt.Sprintf(": %d of %s handed over in %s", d.Released+d.Done, count(d.Jobs, "job", "jobs"), d.Took.Round(time.Millisecond))
	}
	return text
}

// JobTable returns jobs as a table.
func JobTable(jobs []client.Job) *table.Table {
	t := table.New(
		table.Column{Name: "JOB", Least: 12}, table.Column{Name: "KIND", Drop: 4, Least: 6}, table.Column{Name: "STATUS", Drop: 6},
		table.Column{Name: "DONE", Right: true}, table.Column{Name: "LEFT", Right: true, Drop: 1},
		table.Column{Name: "WRITTEN", Right: true, Drop: 2}, table.Column{Name: "RUN TIME", Right: true, Drop: 5},
		table.Column{Name: "WORKER", Drop: 3, Least: 8}, table.Column{Name: "REPORT", Drop: 7, Least: 10},
	)
	for _, j := range jobs {
		left := ""
		if d, ok := TimeLeft(j); ok {
			left = "~" + Span(d)
		}
		worker, report := "", j.Text
		if j.Status == client.StatusRunning {
			worker = j.Owner
		}
		if j.Status != client.StatusRunning && j.Reason != "" {
			report = j.Reason
		}
		t.Add(j.ID, j.Kind, string(j.Status), Percent(j), left, Span(j.Age())+" ago", Span(j.RunTime), worker, report)
	}
	return t
}

// Percent returns a job's fraction in per cent, empty if it has reported none.
func Percent(j client.Job) string {
	if j.Fraction == 0 && j.Text == "" {
		return ""
	}
	return fmt.Sprintf("%d%%", int(j.Fraction*100))
}

// Span returns a duration in its largest unit.
func Span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// Wrap breaks a text behind a heading into lines of at most width columns; the others
// are indented like the first.
func Wrap(heading, text string, width int) []string {
	if width <= len(heading)+10 {
		return []string{table.Cut(heading+plaintext.Line(text), width)}
	}
	var lines []string
	line := heading
	for word := range strings.FieldsSeq(plaintext.Line(text)) {
		switch {
		case strings.TrimSpace(line) == "" || line == heading:
			line += word
		case width > 0 && len([]rune(line))+1+len([]rune(word)) > width:
			lines = append(lines, line)
			line = strings.Repeat(" ", len(heading)) + word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
