package overview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview/table"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// Rows is how many rows of a table are drawn where the height has no limit.
const Rows = 20

// Draw draws a snapshot: problems, counts, queues, kinds, VMs, running jobs. A width or
// height of 0 is no limit. Of problems and tables that do not fit it leaves out rows, and
// says how many.
func Draw(s Snapshot, width, height int) []string {
	did := s.Activity()
	var problems, rows []string
	for _, problem := range s.problems(&did) {
		problems = append(problems, Wrap("! ", problem, width)...)
	}
	for _, row := range s.summary(&did) {
		rows = append(rows, Wrap(fmt.Sprintf("%-8s ", row[0]), row[1], width)...)
	}
	if most := max(height/4, height-len(rows)-leastForTables); height > 0 && len(problems) > most {
		left := len(problems) - max(most, 2) + 1
		problems = append(problems[:len(problems)-left], table.Cut(fmt.Sprintf("! and %s: spotctl status shows all problems",
			count(left, "more line", "more lines")), width))
	}
	lines := slices.Concat(problems, rows)
	parts := []part{
		{s.queueTable(width), "queue", "queues"}, {kindTable(did.Kinds), "kind", "kinds"},
		{vmTable(did.VMs, s.At), "VM", "VMs"}, {jobTable(s.Jobs.Running, s.lacksWorker), "running job", "running jobs"},
	}
	blank := height == 0 || height >= roomy
	for i, rows := range shareRows(height, len(lines), blank, parts) {
		lines = append(lines, parts[i].lines(rows, width, blank)...)
	}
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	return lines
}

const (
	// leastForTables is how many lines problems leave to tables.
	leastForTables = 14

	// roomy is the height from which on blank lines are between tables.
	roomy = 30

	// narrow is the width below which names are shortened.
	narrow = 60
)

// part is a table of the screen.
type part struct {
	*table.Table
	one, many string
}

// shareRows returns how many rows of each table are drawn, 0 for a table that is left out.
// Tables get rows in turn, so that a short one gets all of its own and long ones the same.
func shareRows(height, used int, blank bool, parts []part) []int {
	rows := make([]int, len(parts))
	if height <= 0 {
		for i, p := range parts {
			rows[i] = min(p.Len(), Rows)
		}
		return rows
	}
	around := 1 // the heading
	if blank {
		around++
	}
	lines := func(p part, rows int) int { // that it takes
		switch {
		case rows == 0:
			return 0
		case rows < p.Len():
			return around + rows + 1 // for the count of omitted rows
		}
		return around + rows
	}
	room := height - used
	for more := true; more; {
		more = false
		for i, p := range parts {
			if need := lines(p, rows[i]+1) - lines(p, rows[i]); rows[i] < p.Len() && need <= room {
				rows[i]++
				room, more = room-need, true
			}
		}
	}
	return rows
}

// lines returns the table with at most that many rows, below a blank line if asked for.
func (p part) lines(rows, width int, blank bool) []string {
	if rows == 0 {
		return nil
	}
	var lines []string
	if blank {
		lines = append(lines, "")
	}
	lines = append(lines, p.Lines(width)...)
	if left := p.Len() - rows; left > 0 {
		lines = append(lines[:len(lines)-left], table.Cut("and "+count(left, "more "+p.one, "more "+p.many), width))
	}
	return lines
}

// summary returns the rows above the tables.
func (s *Snapshot) summary(did *Activity) [][2]string {
	rows := [][2]string{{"jobs", s.jobs()}}
	if s.Has(PartWorkers) {
		rows = append(rows, [2]string{"workers", s.fleet()})
		if did.Known > 0 {
			rows = append(rows, [2]string{"slots", did.slots()}, [2]string{"10 min", did.results()})
		}
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
		parts = append(parts, "about "+Number(s.Waiting())+" waiting")
	}
	switch {
	case s.Reading:
		return strings.Join(append(parts, "the others are being read"), ", ")
	case !s.Has(PartJobs):
		return strings.Join(append(parts, "the others are not known"), ", ")
	}
	n := s.Jobs.ByStatus
	parts = append(parts, Number(n[client.StatusRunning])+" running")
	for _, status := range []client.Status{client.StatusOpen, client.StatusPoison, client.StatusCancelled} {
		if n[status] > 0 {
			parts = append(parts, Number(n[status])+" "+string(status))
		}
	}
	return strings.Join(append(parts, fmt.Sprintf("%s done (%s in the last hour)", Number(n[client.StatusDone]),
		Number(s.Jobs.DoneRecently))), ", ")
}

// fleet counts the workers by life and state.
func (s *Snapshot) fleet() string {
	states, jobs := map[string]int{}, 0
	for _, w := range s.Workers {
		if w.Life() == client.Alive {
			states[w.State]++
			jobs += w.Jobs
		}
	}
	var parts []string
	for state, n := range states {
		parts = append(parts, fmt.Sprintf("%s %s", Number(n), state))
	}
	slices.Sort(parts)
	text := Number(s.Count(client.Alive)) + " alive"
	if len(parts) > 0 {
		text += fmt.Sprintf(" (%s) with %s", strings.Join(parts, ", "), count(jobs, "job", "jobs"))
	}
	return fmt.Sprintf("%s, %s silent, %s ended", text, Number(s.Count(client.Silent)), Number(s.Count(client.Ended)))
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
		parts = append(parts, fmt.Sprintf("%s %s", Number(n), kind))
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

// slots describes how the slots spent their time.
func (a *Activity) slots() string {
	all := a.Handler + a.Around + a.Idle + a.Closed
	text := Number(a.Slots)
	if all > 0 {
		text += fmt.Sprintf(": %s in handlers, %s around, %s idle, %s closed", part100(a.Handler, all), part100(a.Around, all),
			part100(a.Idle, all), part100(a.Closed, all))
	}
	if a.Unknown > 0 {
		text += fmt.Sprintf("; %s not known", count(a.Unknown, "worker", "workers"))
	}
	return text
}

// results says how the runs of the last ten minutes ended.
func (a *Activity) results() string {
	all := a.All()
	text := Number(all.Done) + " done, " + Number(all.Failed) + " failed"
	if kept, ok := Kept(all); ok {
		ended := all.Committed + all.HandedOver + all.FailedTime + all.Redone
		text += fmt.Sprintf("; goodput %s (%s handed over), %s redone", Share(kept), part100(all.HandedOver, ended), part100(all.Redone, ended))
	}
	return text
}

// part100 returns a part of a whole in per cent.
func part100(part, whole time.Duration) string {
	return Share(float64(part) / float64(whole))
}

// Share writes a share without a fraction. A share above 0 is at least "<1%".
func Share(share float64) string {
	if share > 0 && share < 0.01 {
		return "<1%"
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}

// queueTable returns the queues, without missing queues. A narrow terminal has no room
// for the start that their names share.
func (s *Snapshot) queueTable(width int) *table.Table {
	t := table.New(
		table.Column{Name: "QUEUE", Least: 8}, table.Column{Name: "MESSAGES", Right: true},
		table.Column{Name: "OLDEST", Right: true}, table.Column{Name: "TO CLEAR", Right: true, Drop: 1},
	)
	if !s.Has(PartQueues) {
		return t
	}
	grown := s.Growing
	if grown == nil { // a view that reads once
		grown = s.Sustained()
	}
	for _, q := range s.AllQueues() {
		if !q.Exists {
			continue
		}
		oldest, toClear := "", ""
		if waited, ok := s.Waits[q.Name]; ok && waited > 0 {
			oldest = Span(waited)
		}
		if left, ok := s.ToClear(q); ok {
			toClear = "~" + Span(left)
		}
		if growth, ok := grown[q.Name]; ok {
			toClear = "grows, " + growth.String()
		}
		name := q.Name
		if width > 0 && width < narrow {
			name = strings.TrimPrefix(name, strings.TrimSuffix(s.Queues.Jobs.Name, "jobs"))
		}
		t.Add(name, Number(q.Messages), oldest, toClear)
	}
	return t
}

// kindTable returns what happened to the jobs of each kind.
func kindTable(kinds []Kind) *table.Table {
	t := table.New(
		table.Column{Name: "KIND", Least: 8}, table.Column{Name: "DONE", Right: true}, table.Column{Name: "FAILED", Right: true},
		table.Column{Name: "P50", Right: true, Drop: 3}, table.Column{Name: "P95", Right: true, Drop: 1},
		table.Column{Name: "P99", Right: true, Drop: 2},
		table.Column{Name: "KEPT", Right: true, Drop: 4},
	)
	for _, k := range kinds {
		failed, kept := Number(k.Failed), ""
		if k.Failed > 0 {
			failed += " (" + Share(FailedShare(k.KindActivity)) + ")"
		}
		if part, ok := Kept(k.KindActivity); ok {
			kept = Share(part)
		}
		t.Add(k.Kind, Number(k.Done), failed, Brief(k.P50), Brief(k.P95), Brief(k.P99), kept)
	}
	return t
}

// Brief returns a duration in two digits or its largest unit, empty for none.
func Brief(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < time.Second:
		return fmt.Sprintf("%dms", max(1, d.Milliseconds()))
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return Span(d)
}

// vmTable returns the VMs. now is this machine's clock.
func vmTable(vms []VM, now time.Time) *table.Table {
	t := table.New(
		table.Column{Name: "VM", Least: 12}, table.Column{Name: "STATE", Drop: 3}, table.Column{Name: "JOBS", Right: true},
		table.Column{Name: "DONE", Right: true}, table.Column{Name: "FAILED", Right: true},
		table.Column{Name: "HEARTBEAT", Right: true, Drop: 4}, table.Column{Name: "UP", Right: true, Drop: 7},
		table.Column{Name: "VERSION", Drop: 6, Least: 8}, table.Column{Name: "LAST EVENT", Drop: 5, Least: 12},
	)
	for _, vm := range vms {
		t.Add(vm.row(now)...)
	}
	return t
}

func (v *VM) row(now time.Time) []string {
	name, done, failed := v.Name, "", ""
	switch {
	case v.Known:
		done, failed = Number(v.Done), Number(v.Failed)
		if len(v.Fails) > 0 {
			name, failed = "! "+name, failed+" ("+Share(share(v.Failed, v.Done))+")"
		}
	case v.Life != client.Ended:
		done, failed = "?", "?"
	}
	states, jobs := map[string]int{}, 0
	first := v.Workers[0] // the best-off worker with the latest heartbeat
	for _, w := range v.Workers {
		if w.Life() != v.Life {
			continue
		}
		if first.Life() != v.Life || w.Age < first.Age {
			first = w
		}
		states[stateOf(w)]++
		jobs += w.Jobs
	}
	state, up := stateOf(first), ""
	if len(states) > 1 {
		state = fmt.Sprintf("%d states", len(states))
	}
	if n := len(v.Workers); n > 1 {
		state += fmt.Sprintf(" (%d workers)", n)
	}
	if v.Life == client.Alive && !first.StartedAt.IsZero() {
		up = Span(now.Sub(first.StartedAt))
	}
	return []string{name, state, Number(jobs), done, failed, Span(first.Age) + " ago", up, first.Version, lastEvent(first, now)}
}

// stateOf returns a worker's state, with the operators' requests to it.
func stateOf(w client.Worker) string {
	switch {
	case w.Life() != client.Alive:
		return w.Life().String()
	case w.Asked != "":
		return w.State + " (" + w.Asked + ")"
	}
	return w.State
}

// WorkerTable returns the workers as a table. now is this machine's clock.
func WorkerTable(workers []client.Worker, now time.Time) *table.Table {
	t := table.New(
		table.Column{Name: "WORKER", Least: 12}, table.Column{Name: "STATE", Drop: 1}, table.Column{Name: "JOBS", Right: true},
		table.Column{Name: "HEARTBEAT", Right: true, Drop: 2}, table.Column{Name: "UP", Right: true, Drop: 5},
		table.Column{Name: "VERSION", Drop: 4, Least: 8}, table.Column{Name: "LAST EVENT", Drop: 3, Least: 12},
	)
	for _, w := range workers {
		up := ""
		if w.Life() == client.Alive && !w.StartedAt.IsZero() {
			up = Span(now.Sub(w.StartedAt))
		}
		t.Add(w.Name, stateOf(w), Number(w.Jobs), Span(w.Age)+" ago", up, w.Version, lastEvent(w, now))
	}
	return t
}

// lastEvent describes the last scheduled event of a worker's VM, and the drain after it.
func lastEvent(w client.Worker, now time.Time) string {
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
	return jobTable(jobs, func(client.Job) bool { return false })
}

// jobTable marks the jobs of which lost says that no worker runs them any more.
func jobTable(jobs []client.Job, lost func(client.Job) bool) *table.Table {
	t := table.New(
		table.Column{Name: "JOB", Least: 12}, table.Column{Name: "KIND", Drop: 4, Least: 6}, table.Column{Name: "STATUS", Drop: 6},
		table.Column{Name: "DONE", Right: true}, table.Column{Name: "LEFT", Right: true, Drop: 1},
		table.Column{Name: "WRITTEN", Right: true, Drop: 2}, table.Column{Name: "RUN TIME", Right: true, Drop: 5},
		table.Column{Name: "WORKER", Drop: 3, Least: 8}, table.Column{Name: "REPORT", Drop: 7, Least: 10, Middle: true},
	)
	for _, j := range jobs {
		left := ""
		if d, ok := j.TimeLeft(); ok {
			left = "~" + Span(d)
		}
		worker, report := "", Report(j)
		if j.Status == client.StatusRunning {
			worker = j.Owner
			if lost(j) {
				worker, left = "gone: "+worker, ""
			}
		}
		if j.Status != client.StatusRunning && j.Reason != "" {
			report = LastLine(j.Reason)
		}
		t.Add(j.ID, j.Kind, string(j.Status), Percent(j), left, Span(j.Age())+" ago", Span(RunTime(j)), worker, report)
	}
	return t
}

// LastLine returns the last line of an error for a list: a traceback says there what is wrong.
func LastLine(reason string) string {
	reason = strings.TrimSpace(reason)
	return reason[strings.LastIndexByte(reason, '\n')+1:]
}

// Percent returns a job's fraction in per cent, empty if it has reported none. It is the
// fraction of the worker's last heartbeat, if that is known.
func Percent(j client.Job) string {
	fraction := j.Fraction
	if j.Live != nil {
		fraction = j.Live.Fraction
	}
	if fraction == 0 && Report(j) == "" {
		return ""
	}
	return fmt.Sprintf("%d%%", int(fraction*100))
}

// Report returns the text of a job's last report. Until the handler has reported, it is the
// record's.
func Report(j client.Job) string {
	if j.Live != nil && (j.Live.Text != "" || j.Live.Fraction > j.Live.From) {
		return j.Live.Text
	}
	return j.Text
}

// RunTime returns how long handlers have run for a job.
func RunTime(j client.Job) time.Duration {
	if j.Live != nil {
		return j.Live.RunTime
	}
	return j.RunTime
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
