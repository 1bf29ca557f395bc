package replay

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/replay/lanes"
)

//go:embed page.html
var pageText string

var pageTemplate = lanes.Template("page", pageText)

// page is the content of the page.
type page struct {
	Title, About string
	Numbers      []number
	Paid         []share
	VMs, Jobs    []lanes.Track
	OtherVMs     int // that are not shown
	OtherJobs    int
	Cut          bool
	Axis         []string
	Over         []lanes.Bar // goodput over time
	OverText     string
	Delays       []series
	DelaysTable  []delayRow
	Facts        [][2]string
}

// number is a figure with its meaning.
type number struct{ Value, Name, Note string }

// share is a part of the time that was paid for.
type share struct {
	Class, Name string
	X, Width    float64 // percent
	Value       string
}

// series is a distribution.
type series struct {
	Name, Class, Label string
	Bars               []lanes.Bar
	To                 string
}

// delayRow is a row of the table of interrupted runs.
type delayRow struct{ Name, Runs, Hidden, Mean, Median, P99, Redone string }

// Page writes a report as one HTML page that loads nothing.
func (r *Report) Page(to io.Writer) error { return pageTemplate.Execute(to, r.page()) }

func (r *Report) page() page {
	s, h := r.Scenario, r.Hours
	p := page{
		Title: fmt.Sprintf("%s VMs for %s", count(r.Picture.spot), Brief(seconds(r.Took))),
		About: s.Words(),
		Numbers: []number{
			{fmt.Sprintf("%.2f %%", h.Goodput()), "goodput while running", "useful share of the time in which slots had a job"},
			{fmt.Sprintf("%.1f %%", h.GoodputBusy()), "goodput of paid time", "boots and departures count, idle slots do not"},
			{meanOf(r.Warned.Redone, r.Warned.Runs), "redone after a notice", plural(r.Warned.Runs, "run") + " ended by a notice"},
			{meanOf(r.Sudden.Redone, r.Sudden.Runs), "redone after a death", plural(r.Sudden.Runs, "run") + " ended without one"},
		},
		Paid: h.shares(), Cut: r.Picture.cut, Facts: r.Facts(), Axis: axis(r.Picture.until),
		OtherVMs: max(0, len(r.Picture.lanes)-drawnLanes), OtherJobs: max(0, r.Jobs-drawnJobs),
		DelaysTable: []delayRow{row("after a notice", r.Warned), row("without a notice", r.Sudden)},
		Delays:      []series{histogram("after a notice", "warn", r.Warned.delays), histogram("without a notice", "bad", r.Sudden.delays)},
	}
	p.VMs, p.Jobs = r.Picture.tracks()
	p.Over, p.OverText = r.Picture.goodput()
	return p
}

// seconds is a number of seconds as a duration.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// meanOf is a mean of some runs; a dash for none.
func meanOf(mean float64, runs int) string {
	if runs == 0 {
		return "–"
	}
	return Brief(seconds(mean))
}

func row(name string, l Losses) delayRow {
	if l.Runs == 0 {
		return delayRow{Name: name, Runs: "0", Hidden: "–", Mean: "–", Median: "–", P99: "–", Redone: "–"}
	}
	return delayRow{
		Name: name, Runs: count(l.Runs), Hidden: Brief(seconds(l.Hidden)), Mean: Brief(seconds(l.Mean)), Median: Brief(seconds(l.Median)),
		P99:    Brief(seconds(l.P99)),
		Redone: Brief(seconds(l.Redone)),
	}
}

// count writes a number with its thousands apart.
func count(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// shares are the parts of the time that was paid for, side by side.
func (h Hours) shares() []share {
	var all []share
	x := 0.0
	for _, part := range h.Parts() {
		name := part.Name
		if part.Class == "leaving" {
			name = "leaving after a notice"
		}
		all = append(all, share{Class: part.Class, Name: name, X: x, Width: part.Share, Value: fmt.Sprintf("%.2f %%", part.Share)})
		x += part.Share
	}
	return all
}

// Facts are the rest of the figures.
func (r *Report) Facts() [][2]string {
	s := r.Scenario
	facts := [][2]string{
		{"Jobs done", fmt.Sprintf("%s of %s", count(r.Done), count(r.Jobs))},
		{"Time", fmt.Sprintf("%s; %s with no eviction and nothing to boot", Brief(seconds(r.Took)), Brief(seconds(r.Ideal)))},
		{"VMs", count(r.VMs) + " lived"},
		{"Saves", count(r.Saves)},
		{"Storage calls", fmt.Sprintf("%s; %.3g for each useful hour", count(r.Calls), float64(r.Calls)/max(r.Hours.Useful, 1e-9))},
	}
	if r.Cost > 0 {
		facts = append(facts, [2]string{"Cost", fmt.Sprintf("%.2f; %.4f for each useful hour of a slot", r.Cost, r.Cost/max(r.Hours.Useful,
			1e-9))})
	}
	return append(facts, [2]string{"Seed", fmt.Sprint(s.Seed)})
}

// Words describes a scenario in a sentence or two.
func (s Scenario) Words() string {
	var b strings.Builder
	f := s.Fleet
	switch {
	case isDrawn(f.Lives):
		fmt.Fprintf(&b, "Synthetic lives (%s), evictions per hour of a VM: %g", f.Lives, f.Rate)
	default:
		fmt.Fprintf(&b, "Lives as recorded (%s)", f.Lives)
	}
	for _, kind := range []struct {
		share float64
		text  string
	}{{f.Full, "announced 30 s before"}, {f.Short, "announced less than 10 s before"}, {1 - f.Full - f.Short, "not announced"}} {
		if kind.share > 1e-9 {
			fmt.Fprintf(&b, "; %.0f %% %s", 100*kind.share, kind.text)
		}
	}
	b.WriteString(". ")
	fmt.Fprintf(&b, "Jobs of %s, a save of %s, %s.%s", Brief(s.Work.Length.Duration), Brief(s.Work.Save.Duration), s.Policy.words(),
		s.Work.words())
	return b.String()
}

// words says how the jobs differ from the default ones.
func (w Work) words() (text string) {
	switch states := w.States.Duration; {
	case states >= w.Length.Duration:
		text += " The jobs have no state while they run."
	case states > 0:
		text += fmt.Sprintf(" The jobs have a state every %s.", Brief(states))
	}
	if w.NoLast {
		text += " They save nothing at a notice."
	}
	if w.Stop.Duration > 0 {
		text += fmt.Sprintf(" They stop within %s.", Brief(w.Stop.Duration))
	}
	return text
}

func (p Policy) words() string {
	parts := []string{"saved when the worker's policy says"}
	switch {
	case p.Never:
		parts[0] = "never saved"
	case p.Interval.Duration > 0:
		parts[0] = "saved every " + Brief(p.Interval.Duration)
	}
	if p.Deaf {
		parts = append(parts, "notices not seen")
	}
	if p.Hold {
		parts = append(parts, "messages not released")
	}
	if p.MoveAfter > 0 {
		parts = append(parts, fmt.Sprintf("moved to a regular VM after %d interruptions", p.MoveAfter))
	}
	return strings.Join(parts, ", ")
}
