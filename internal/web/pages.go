package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/overview/detail"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// page makes the page of an address. An unknown address has a page too, with status 404.
func (s *Server) page(ctx context.Context, at *url.URL) *page {
	p := s.blank(at)
	if at.Path == "/" {
		p.view = s.feed.begun(ctx)
	} else {
		p.view = s.feed.fresh(ctx)
	}
	id, isJob := strings.CutPrefix(at.Path, "/job/")
	number, isChange := strings.CutPrefix(at.Path, "/changed/")
	switch {
	case isChange && s.config.AllowChanges:
		s.changed(p, number)
	case at.Path == "/put" && s.config.AllowChanges:
		s.newJobOf(p, newJob{Kind: at.Query().Get("kind")})
	case isJob:
		p.Tab = "jobs"
		s.job(ctx, p, id)
	case p.state == nil:
		p.Name, p.Title, p.Tab = "missing", "No answer from storage", cmp.Or(strings.Trim(at.Path, "/"), "now")
	case at.Path == "/":
		p.Name, p.Title, p.Tab, p.Body = "now", "Now", "now", nowOf(p.view)
	case at.Path == "/jobs":
		chosen := selectionOf(at.Query())
		p.Name, p.Title, p.Tab, p.Body = "jobs", "Jobs", "jobs", s.window(p.view, chosen, at.Query())
	case at.Path == "/waiting":
		p.Name, p.Title, p.Tab, p.Body = "waiting", "Waiting", "jobs", s.waitingOf(ctx)
	case at.Path == "/workers":
		p.Name, p.Title, p.Tab, p.Body = "workers", "Workers", "workers", vmsOf(p.view)
	case at.Path == "/poison":
		p.Name, p.Title, p.Tab = "poison", "Poison", "poison"
	case at.Path == "/costs":
		p.Name, p.Title, p.Tab, p.Body = "costs", "Costs", "costs", s.costsOf(p.view)
	default:
		p.Status, p.Name, p.Title, p.Body = http.StatusNotFound, "missing", "No such page", "There is no page with this address."
	}
	return p
}

// Read says when the page's state was read, or since when it cannot be.
func (p *page) Read() (r struct {
	Ok         bool
	At, Since  time.Time
	Took, Why  string
	HasNothing bool
	Workers    int
}) {
	r.Ok, r.HasNothing = p.outage == nil, p.state == nil
	if p.state != nil {
		r.At, r.Took = p.At, overview.Brief(p.Took)
	}
	if p.outage != nil {
		r.Since, r.Why = p.outage.since, line(p.outage.why)
	}
	return r
}

// Unfinished reports whether the jobs are still being read.
func (p *page) Unfinished() bool { return p.isPart() }

// Missing are the parts of the state that could not be read. The page with
// the present has them among its problems.
func (p *page) Missing() (all []string) {
	if p.state == nil {
		return nil
	}
	for _, fault := range p.Faults {
		all = append(all, line(fault.String()))
	}
	return all
}

// Problems are the problems that an operator should look at first.
func (p *page) Problems() (all []template.HTML) {
	for _, text := range p.problems {
		all = append(all, p.sentence(text))
	}
	return all
}

// Messages returns the number of messages on the poison queue.
func (p *page) Messages() int {
	if p.state == nil {
		return 0
	}
	return p.Queues.Poison.Messages
}

// IsNew reports whether the deployment has nothing to show yet.
func (p *page) IsNew() bool {
	q := p.Queues
	messages := q.Jobs.Messages + q.First.Messages + q.OnDemand.Messages + q.Poison.Messages
	return !p.Reading && len(p.Faults)+len(p.jobs)+len(p.Workers)+messages == 0
}

// Waiting returns the address of the change that cancels a job without a record; empty for a page
// of anything else.
func (p *page) Waiting() string {
	if id, isJob := strings.CutPrefix(p.Address, "/job/"); isJob && p.Status == http.StatusNotFound {
		if id, err := url.PathUnescape(id); err == nil {
			return changeAddress("cancel", "id", id)
		}
	}
	return ""
}

// Groups are the reasons of jobs that were dead-lettered.
func (p *page) Groups() (groups []groupRow) {
	for _, g := range p.givenUp {
		groups = append(groups, groupRow{Kind: line(g.Kind), Reason: plaintext.Line(plaintext.Middle(g.Reason, listed)),
			Jobs:    overview.Number(g.Messages),
			Workers: g.Workers, First: g.First, Last: g.Last, Example: g.Example, Key: groupKey(g),
			All: addressOfJobs(g.Kind, string(client.StatusPoison))})
	}
	return groups
}

// groupRow is a reason for which jobs were dead-lettered.
type groupRow struct {
	Kind, Reason, Jobs, Example, All string
	Key                              string // for changes
	Workers                          int
	First, Last                      time.Time
}

// tile is a figure with its course.
type tile struct {
	Label, Value, Note, Address, Class string
	Course                             template.HTML
}

// now is the body of the page with the present.
type now struct {
	Tiles       []tile
	Ended, Load chart
	Kinds       []kindRow
	Queues      []queueRow
	Running     []jobRow
	More        int // running jobs that are not listed
	Evictions   []eviction
}

// mostRunning is how many running jobs the first page lists.
const mostRunning = 12

func nowOf(v view) now {
	n := now{Ended: v.ended(), Load: v.load(), Tiles: tilesOf(v), Queues: queuesOf(v)}
	all := overview.HandlerTime(v.activity.All())
	for _, k := range v.activity.Kinds {
		n.Kinds = append(n.Kinds, kindRowOf(k, all))
	}
	for _, j := range v.Jobs.Running[:min(len(v.Jobs.Running), mostRunning)] {
		n.Running = append(n.Running, v.rowOf(j, 0))
	}
	n.More = len(v.Jobs.Running) - len(n.Running)
	for _, w := range v.Evictions() {
		if len(n.Evictions) == mostRunning {
			break
		}
		n.Evictions = append(n.Evictions, evictionOf(w))
	}
	return n
}

func tilesOf(v view) []tile {
	counts := v.Jobs.ByStatus
	course := func(of func(sample) (float64, bool)) template.HTML { return spark(v.history, of) }
	tiles := []tile{
		{Label: "Waiting", Value: "–", Note: "about, on the queues", Address: "/waiting", Class: "wait",
			Course: course(func(s sample) (float64, bool) { return float64(s.waiting), s.hasQueues })},
		{Label: "Running", Value: overview.Number(counts[client.StatusRunning]), Note: "by the records",
			Address: "/jobs?status=running", Class: "run",
			Course: course(func(s sample) (float64, bool) { return float64(s.running), s.hasJobs })},
		{Label: "Done, last hour", Value: overview.Number(v.Jobs.DoneRecently), Note: overview.Number(counts[client.StatusDone]) + " in all",
			Address: "/jobs?status=done", Class: "done",
			Course: course(func(s sample) (float64, bool) { return float64(s.done), s.hasJobs })},
		{Label: "Poison", Value: overview.Number(v.Queues.Poison.Messages), Note: "dead-lettered messages", Address: "/poison", Class: "plain",
			Course: course(func(s sample) (float64, bool) { return float64(s.poison), s.hasJobs })},
		{Label: "Workers alive", Value: overview.Number(v.Count(client.Alive)), Address: "/workers", Class: "plain",
			Note:   fmt.Sprintf("%s silent, %s ended", overview.Number(v.Count(client.Silent)), overview.Number(v.Count(client.Ended))),
			Course: course(func(s sample) (float64, bool) { return float64(s.alive), s.hasQueues })},
		{Label: "Goodput, 10 min", Value: "–", Note: "of handlers' time kept", Address: "/costs", Class: "plain",
			Course: course(func(s sample) (float64, bool) { return s.goodput, s.goodput >= 0 })},
	}
	if v.Has(overview.PartQueues) && v.Has(overview.PartWorkers) {
		tiles[0].Value = overview.Number(v.Waiting())
	}
	if !v.Has(overview.PartJobs) {
		tiles[1].Value, tiles[2].Value, tiles[2].Note = "–", "–", "by the records"
	}
	if !v.Has(overview.PartQueues) {
		tiles[3].Value = "–"
	} else if v.Queues.Poison.Messages > 0 {
		tiles[3].Class = "bad"
	}
	if !v.Has(overview.PartWorkers) {
		tiles[4].Value = "–"
	}
	if part, ok := overview.Kept(v.activity.All()); ok {
		tiles[5].Value = overview.Share(part)
	}
	return tiles
}

// kindRow is a kind of jobs.
type kindRow struct{ Name, Done, Failed, FailedShare, P50, P95, P99, Kept, Time, Address string }

// kindRowOf returns the row of a kind. all is the time of handlers of all kinds.
func kindRowOf(k overview.Kind, all time.Duration) kindRow {
	r := kindRow{Name: line(k.Kind), Done: overview.Number(k.Done), Failed: overview.Number(k.Failed),
		P50: overview.Brief(k.P50), P95: overview.Brief(k.P95), P99: overview.Brief(k.P99),
		Address: addressOfJobs(k.Kind)}
	if k.Failed > 0 {
		r.FailedShare = overview.Share(overview.FailedShare(k.KindActivity))
	}
	if part, ok := overview.Kept(k.KindActivity); ok {
		r.Kept = overview.Share(part)
		r.Time = overview.Share(float64(overview.HandlerTime(k.KindActivity)) / float64(all))
	}
	return r
}

// queueRow is a queue.
type queueRow struct {
	Name, Messages, Oldest, ToClear string
	Grows                           bool
}

func queuesOf(v view) (rows []queueRow) {
	if !v.Has(overview.PartQueues) {
		return nil
	}
	for _, q := range v.AllQueues() {
		if !q.Exists {
			continue
		}
		r := queueRow{Name: q.Name, Messages: overview.Number(q.Messages)}
		if waited := v.Waits[q.Name]; waited > 0 {
			r.Oldest = overview.Span(waited)
		}
		if left, ok := v.ToClear(q); ok {
			r.ToClear = "~" + overview.Span(left)
		}
		if g, ok := v.growing[q.Name]; ok {
			r.ToClear, r.Grows = "grows, "+g.String(), true
		}
		rows = append(rows, r)
	}
	return rows
}

// eviction is a scheduled event of a VM.
type eviction struct {
	At                        time.Time
	Type, VM, Worker, Outcome string
	Left                      bool
}

func evictionOf(w client.Worker) eviction {
	e := eviction{At: w.LastEvent.SeenAt, Type: line(w.LastEvent.Type), VM: line(w.VM), Worker: line(w.Name), Outcome: "no drain yet"}
	if d := w.LastDrain; d != nil && !d.EndedAt.Before(w.LastEvent.SeenAt) {
		e.Outcome = fmt.Sprintf("%d of %d jobs handed over in %s", d.Released+d.Done, d.Jobs, d.Took.Round(time.Millisecond))
		e.Left = d.Left > 0
	}
	return e
}

// jobRow is a job in a list.
type jobRow struct {
	Index                      int // from 1
	ID, Kind, Worker, Report   string
	Status                     client.Status
	Percent, Left, RunTime     string
	Fraction                   float64
	Written                    time.Time
	Failures, Interruptions    int
	HasProgress, MayMissItsEnd bool
	CanPick                    bool // it can be selected for a change
}

func (s *state) rowOf(j client.Job, index int) jobRow {
	r := jobRow{
		Index: index, ID: j.ID, Kind: line(j.Kind), Status: j.Status, Worker: line(j.Owner), Report: line(overview.Report(j)),
		Percent:  overview.Percent(j),
		Fraction: j.Fraction, RunTime: overview.Brief(overview.RunTime(j)), Written: j.UpdatedAt.Add(s.skew), Failures: j.TotalFailures,
		Interruptions: j.Interruptions,
	}
	if j.Live != nil {
		r.Fraction = j.Live.Fraction
	}
	r.HasProgress = r.Percent != ""
	if j.Status != client.StatusRunning && j.Reason != "" {
		r.Report = line(overview.LastLine(j.Reason))
	}
	if left, ok := j.TimeLeft(); ok {
		r.Left = "~" + overview.Span(left)
	}
	risk, _ := j.Risk()
	r.MayMissItsEnd = risk.AtRisk() || risk == client.RiskLate
	return r
}

// Rows are at most so many in a response.
const (
	firstRows = 30 // more than a screen shows; the script asks for the others
	mostRows  = 200
)

// window is a part of the selected jobs.
type window struct {
	Selection   selection
	Rows        []jobRow
	From, Total int
	All         int // with a record
	Counts      []statusCount
	Kinds       []string
	Earlier     string // addresses for browsers without the script
	Later       string
	Columns     []column
}

// statusCount is how many of the jobs have a status.
type statusCount struct {
	Status client.Status
	Count  string
	Chosen bool
}

// column is a column of the list of jobs.
type column struct{ Name, Class, Address, Sorted string }

// window returns the rows that an address asks for.
func (s *Server) window(v view, chosen selection, q url.Values) window {
	from, _ := strconv.Atoi(q.Get("from"))
	count, err := strconv.Atoi(q.Get("count"))
	if err != nil {
		count = firstRows
	}
	found := s.selections.of(chosen, v.state)
	w := window{Selection: chosen, Total: len(found.jobs), All: len(v.jobs), Kinds: v.kinds}
	w.From = min(max(from, 0), max(w.Total-1, 0))
	to := min(w.From+min(max(count, 1), mostRows), w.Total)
	for i, j := range found.jobs[w.From:to] {
		row := v.rowOf(*j, w.From+i+1)
		row.CanPick = s.config.AllowChanges
		w.Rows = append(w.Rows, row)
	}
	if s.config.AllowChanges {
		w.Columns = append(w.Columns, column{Name: "Select", Class: "pick"})
	}
	for _, status := range overview.Statuses {
		if n := found.counts[status]; n > 0 || status != client.StatusUnknown || chosen.Has(status) {
			w.Counts = append(w.Counts, statusCount{status, overview.Number(n), chosen.Has(status)})
		}
	}
	at := func(from int) string {
		q := chosen.query()
		q.Set("from", strconv.Itoa(from))
		return "/jobs?" + q.Encode()
	}
	if w.From > 0 {
		w.Earlier = at(max(0, w.From-firstRows))
	}
	if to < w.Total {
		w.Later = at(to)
	}
	for _, c := range [][3]string{{"Job", "id", "id"}, {"Kind", "kind", "kind"}, {"Status", "status", "status"},
		{"Progress", "progress", "fraction"}, {"Run time", "num time", "runtime"}, {"Interrupted", "num interrupted", "interruptions"},
		{"Failed", "num failed", "failures"},
		{"Worker", "worker", ""}, {"Written", "num written", "written"}} {
		col := column{Name: c[0], Class: c[1], Sorted: "none"}
		if c[2] != "" {
			col.Address = chosen.SortBy(c[2])
		}
		if c[2] == chosen.Sort {
			col.Sorted = "descending"
			if isAscending := slices.Contains([]string{"id", "kind", "status"}, c[2]); isAscending != chosen.Up {
				col.Sorted = "ascending"
			}
		}
		w.Columns = append(w.Columns, col)
	}
	return w
}

// rows answers with a window of rows, for the script.
func (s *Server) rows(w http.ResponseWriter, r *http.Request) {
	v := s.feed.fresh(r.Context())
	if v.state == nil {
		http.Error(w, "storage does not answer", http.StatusServiceUnavailable)
		return
	}
	found := s.window(v, selectionOf(r.URL.Query()), r.URL.Query())
	html, err := s.render("job-rows", found)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Rows-From", strconv.Itoa(found.From))
	h.Set("Rows-Total", strconv.Itoa(found.Total))
	_, _ = w.Write([]byte(html)) //nolint:gosec // made by html/template
}

// vmRow is a VM with its workers.
type vmRow struct {
	Name, Life, Fails         string
	Machine                   string // size and zone, as the worker that started last reports them
	Workers                   []workerRow
	Jobs, Done, Failed, Slots string
	Sick                      bool
	Changes                   []button
}

// workerRow is a worker of a VM.
type workerRow struct {
	Name, State, Life, Version, Kinds, Calls, Jobs string
	Heartbeat, Started                             time.Time
	Event                                          *eviction
}

func vmsOf(v view) (rows []vmRow) {
	for _, vm := range v.activity.VMs {
		r := vmRow{Name: line(vm.Name), Life: vm.Life.String(), Done: "–", Failed: "–", Sick: len(vm.Fails) > 0}
		if vm.Known {
			r.Done, r.Failed = overview.Number(vm.Done), overview.Number(vm.Failed)
		}
		var fails []string
		for _, k := range vm.Fails {
			fails = append(fails, fmt.Sprintf("%s (%d of %d)", line(k.Kind), k.Failed, k.Failed+k.Done))
		}
		r.Fails = strings.Join(fails, ", ")
		jobs, slots, newest := 0, 0, time.Time{}
		for _, w := range vm.Workers {
			if w.Life() == client.Alive {
				jobs += w.Jobs
				if w.Activity != nil {
					slots += w.Activity.Slots
				}
			}
			if about := line(detail.Machine(w)); about != "" && !w.StartedAt.Before(newest) {
				r.Machine, newest = about, w.StartedAt
			}
			r.Workers = append(r.Workers, workerRowOf(v, w))
		}
		r.Jobs, r.Changes = overview.Number(jobs), v.changesOfVM(vm)
		if slots > 0 {
			r.Slots = overview.Number(slots)
		}
		rows = append(rows, r)
	}
	return rows
}

func workerRowOf(v view, w client.Worker) workerRow {
	r := workerRow{Name: line(w.Name), State: line(w.State), Life: w.Life().String(), Version: line(w.Version),
		Kinds: line(strings.Join(w.Kinds, ", ")), Jobs: overview.Number(w.Jobs), Heartbeat: v.At.Add(-w.Age), Started: w.StartedAt}
	if w.Asked != "" {
		r.State += ", " + line(w.Asked)
	}
	if w.Life() != client.Alive {
		r.State = r.Life
	}
	r.Calls = callsOf(w.Findings)
	if w.LastEvent != nil {
		r.Event = new(evictionOf(w))
	}
	return r
}

// callsOf says how many calls to storage failed or were slow; empty if all is well.
func callsOf(f *client.Findings) string {
	if f == nil || f.FailedCalls+f.SlowCalls == 0 {
		return ""
	}
	var parts []string
	if f.FailedCalls > 0 {
		parts = append(parts, overview.Number(f.FailedCalls)+" failed")
	}
	if f.SlowCalls > 0 {
		parts = append(parts, overview.Number(f.SlowCalls)+" over 1 s")
	}
	return fmt.Sprintf("%s calls in the last minute: %s", overview.Number(f.Calls), strings.Join(parts, ", "))
}

// functions are the functions of the templates.
func (s *Server) functions() template.FuncMap {
	return template.FuncMap{
		"ago": ago, "line": line, "number": overview.Number, "size": detail.Size, "s": plural, "span": overview.Span,
		"static": func(name string) string { return "/static/" + name + "?of=" + contentID },
		"ages":   func() []string { return []string{"5m", "15m", "1h", "6h", "24h", "168h"} },
		"region": func(name string, p *page) (template.HTML, error) { return s.region(name, p) },
		"main":   func(p *page) (template.HTML, error) { return s.render("page-"+p.Name, p) },
		"bar": func(fraction float64) template.HTML {
			return stack(overview.Share(fraction), piece{"run", min(max(fraction, 0), 1)}, piece{"room", 1 - min(max(fraction, 0), 1)})
		},
	}
}

// plural returns the end of the noun after a number, or the text of a number.
func plural(n any) string {
	if fmt.Sprint(n) == "1" {
		return ""
	}
	return "s"
}

// spark draws a small course.
func spark(history []sample, of func(sample) (float64, bool)) template.HTML {
	var values []float64
	most := 0.0
	for _, s := range history {
		if v, ok := of(s); ok {
			values, most = append(values, v), max(most, v)
		}
	}
	var b strings.Builder
	b.WriteString(`<svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">`)
	if len(values) > 1 {
		b.WriteString(`<polyline points="`)
		for i, v := range values {
			y := 19.0
			if most > 0 {
				y = 19 - 18*v/most
			}
			fmt.Fprintf(&b, "%.1f,%.1f ", 100*float64(i)/float64(len(values)-1), y)
		}
		b.WriteString(`"/>`)
	}
	return template.HTML(b.String() + "</svg>") //nolint:gosec // numbers
}

// isNoJob reports whether an error means that the job has no record.
func isNoJob(err error) bool { return errors.Is(err, client.ErrNotFound) }
