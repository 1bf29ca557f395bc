package trial

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/text"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// Report holds the findings of a trial, for programs. Times are in seconds.
type Report struct {
	Version       int        `json:"version"`
	Command       string     `json:"command"`
	Snapshot      bool       `json:"snapshot,omitempty"` // it was frozen, and its checkpoints are snapshots
	Interruptible bool       `json:"interruptible"`
	Seconds       float64    `json:"seconds"`
	Undisturbed   Timing     `json:"undisturbed"`
	Evictions     []Eviction `json:"evictions"`
	Cost          *Cost      `json:"cost,omitempty"`
	Findings      []Finding  `json:"findings"`
}

// Timing describes an undisturbed run.
type Timing struct {
	Seconds         float64 `json:"seconds"`
	Checkpoints     int     `json:"checkpoints"`
	CheckpointBytes int64   `json:"checkpoint_bytes"` // of the largest
	Interval        float64 `json:"interval"`         // between two checkpoints, the median
	SaveSeconds     float64 `json:"save_seconds"`     // from its first byte to its rename, the longest
}

// Eviction describes one of them. A time that was not observed is -1.
type Eviction struct {
	How     string  `json:"how"`
	After   float64 `json:"after"`   // of work in that run
	Stop    float64 `json:"stop"`    // from SIGTERM to the program's end
	Release float64 `json:"release"` // from SIGTERM to the job's being on the queue
	Back    float64 `json:"back"`    // from there, or the VM's death, to the next start
	Sign    float64 `json:"sign"`    // from that to its first checkpoint or progress
	Redone  float64 `json:"redone"`  // work that was done twice
	Saved   bool    `json:"saved"`   // it put a checkpoint in place after SIGTERM
	Exit    string  `json:"exit"`
}

// Cost is the cost of an eviction for the program, on Azure.
type Cost struct {
	Notice float64 `json:"notice"` // with notice
	Sudden float64 `json:"sudden"` // without
}

func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond)) / float64(time.Second)
}

func duration(seconds float64) string {
	return text.Duration(time.Duration(seconds * float64(time.Second)))
}

// judge makes the report of the observations.
func judge(c Config, command string, seen observed) Report {
	r := Report{Version: 1, Command: command, Snapshot: seen.snapshot, Evictions: []Eviction{}}
	r.Findings = append([]Finding{}, find(c, seen)...)
	r.Interruptible = !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Problem })
	if len(seen.plain) > 0 && len(seen.plain[0].Runs) > 0 {
		r.Undisturbed = timingOf(seen.plain[0])
	}
	if seen.evicted != nil {
		r.Evictions = evictionsOf(seen.evicted)
		r.Cost = costOf(r.Evictions, r.untilSign())
	}
	return r
}

func timingOf(c *course) Timing {
	saves := c.saves()
	t := Timing{Seconds: seconds(c.took()), Checkpoints: len(saves), CheckpointBytes: largest(c)}
	var gaps []float64
	for i, s := range saves {
		if i > 0 {
			gaps = append(gaps, seconds(s.Placed.Sub(saves[i-1].Placed)))
		}
		if !s.Began.IsZero() {
			t.SaveSeconds = max(t.SaveSeconds, seconds(s.Placed.Sub(s.Began)))
		}
	}
	t.Interval = median(gaps)
	return t
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func evictionsOf(c *course) []Eviction {
	all := []Eviction{}
	for i, r := range c.Runs {
		if r.Strike == nil {
			continue
		}
		e := Eviction{How: string(*r.Strike), After: seconds(r.took()), Stop: -1, Release: -1, Back: -1, Sign: -1, Redone: seconds(r.redone()),
			Exit: r.Exit}
		left := r.Ended
		if !r.Stop.IsZero() {
			e.Stop = seconds(r.stopped())
			e.Saved = len(r.Saves) > 0 && r.Saves[len(r.Saves)-1].Placed.After(r.Stop)
			if !r.Handed.IsZero() {
				e.Release, left = seconds(max(0, r.Handed.Sub(r.Stop))), r.Handed
			}
		}
		if i+1 < len(c.Runs) && !c.Runs[i+1].Started.IsZero() {
			next := c.Runs[i+1]
			e.Back = seconds(max(0, next.Started.Sub(left)))
			if !next.FirstSign.IsZero() {
				e.Sign = seconds(next.FirstSign.Sub(next.Started))
			}
		}
		all = append(all, e)
	}
	return all
}

// untilSign is how long a program works before it shows its first sign of progress, in seconds. A
// program that is continued from a snapshot shows it at once.
func (r Report) untilSign() float64 {
	if r.Snapshot {
		return 0
	}
	return r.Undisturbed.Interval
}

// costOf estimates the cost of an eviction on Azure, from the observed evictions.
func costOf(all []Eviction, untilSign float64) *Cost {
	var withNotice, redone, signs []float64
	for _, e := range all {
		if e.Sign >= 0 {
			signs = append(signs, e.Sign)
		}
		if e.Release >= 0 && e.Back >= 0 {
			withNotice = append(withNotice, e.Release+e.Back+e.Redone)
		} else if e.Stop < 0 {
			redone = append(redone, e.Redone)
		}
	}
	if len(withNotice)+len(redone) == 0 {
		return nil
	}
	start := max(0, median(signs)-untilSign)
	return &Cost{Notice: median(withNotice) + start, Sudden: visibilityThere.Seconds() + median(redone) + start}
}

// reason names the problems.
func (r Report) reason() string {
	var names []string
	for _, f := range r.Findings {
		if f.Severity == Problem {
			names = append(names, f.Name)
		}
	}
	return strings.Join(names, ", ")
}

// isUntried reports whether the trial found nothing against the program, but could not answer
// the question.
func (r Report) isUntried() bool {
	open := []string{"no-result", "not-evicted", "out-of-time", "daemon"}
	var problems []string
	for _, f := range r.Findings {
		if f.Severity == Problem {
			problems = append(problems, f.Name)
		}
	}
	if slices.Contains(problems, "daemon") {
		open = append(open, "left-behind") // its own processes
	}
	return len(problems) > 0 && !slices.ContainsFunc(problems, func(name string) bool { return !slices.Contains(open, name) })
}

// count returns how many findings there are of a severity.
func (r Report) count(s Severity) (n int) {
	for _, f := range r.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// width of the report, as of the story with its times.
const width = text.Width + 10

// write prints the report for people.
func (r Report) write(out io.Writer) {
	var b strings.Builder
	r.writeTable(&b)
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s: %s\n", f.Severity, f.Name)
		for _, paragraph := range []string{sentence(f.What), f.Advice} {
			for _, line := range text.Wrap(plaintext.Block(paragraph), width-2) {
				fmt.Fprintln(&b, "  "+line)
			}
		}
		fmt.Fprintln(&b)
	}
	verdict := "INTERRUPTIBLE"
	switch {
	case r.isUntried():
		verdict = "NOT TRIED"
	case !r.Interruptible:
		verdict = "NOT INTERRUPTIBLE"
	}
	fmt.Fprintf(&b, "%s  %s, %s; tried in %.1f s\n", verdict, text.Plural(r.count(Problem), "problem"),
		text.Plural(r.count(Warning), "warning"), r.Seconds)
	_, _ = io.WriteString(out, b.String())
}

// writeTable prints the measurements.
func (r Report) writeTable(b *strings.Builder) {
	t := r.Undisturbed
	if t.Seconds == 0 {
		return
	}
	row := func(name, value string) { fmt.Fprintf(b, "%-22s %s\n", name, value) }
	row("undisturbed", duration(t.Seconds))
	if t.Checkpoints > 0 {
		written := ""
		if t.SaveSeconds > 0 {
			written = r.words(", written in ", ", taken in ") + duration(t.SaveSeconds)
		}
		every := ""
		if t.Interval > 0 {
			every = ", one every " + duration(t.Interval)
		}
		row(r.words("checkpoints", "snapshots"),
			fmt.Sprintf("%d, up to %s%s%s", t.Checkpoints, text.Size(t.CheckpointBytes), every, written))
	}
	if len(r.Evictions) > 0 {
		twice := 0.0
		for _, e := range r.Evictions {
			twice += e.Redone
		}
		row("done twice", fmt.Sprintf("%s of work, over %s", duration(twice), text.Plural(len(r.Evictions), "eviction")))
		r.writeTimes(row)
	}
	if r.Cost != nil {
		if r.Cost.Notice > 0 {
			row("an eviction costs", fmt.Sprintf("about %s", duration(r.Cost.Notice)))
		}
		row("a VM's death costs", fmt.Sprintf("about %s; for %.0f s of it no worker has the job", duration(r.Cost.Sudden),
			visibilityThere.Seconds()))
	}
	fmt.Fprintln(b)
}

// words returns the words for a program that is not frozen, or is.
func (r Report) words(not, frozen string) string {
	if r.Snapshot {
		return frozen
	}
	return not
}

// writeTimes prints how long the parts of an eviction took, in the median.
func (r Report) writeTimes(row func(name, value string)) {
	from := r.words("SIGTERM", "the stop")
	for _, part := range []struct {
		name, what string
		of         func(Eviction) float64
	}{
		{"to stop", from + " to the program's end", func(e Eviction) float64 { return e.Stop }},
		{"to hand over", from + " to the job's release", func(e Eviction) float64 { return e.Release }},
		{"to come back", "release to the next start", func(e Eviction) float64 {
			if e.Release < 0 {
				return -1
			}
			return e.Back
		}},
		{"to work again", r.words("start to a sign of progress", "start to its continuation"), func(e Eviction) float64 { return e.Sign }},
	} {
		var all []float64
		for _, e := range r.Evictions {
			if v := part.of(e); v >= 0 {
				all = append(all, v)
			}
		}
		if len(all) > 0 {
			row(part.name, fmt.Sprintf("%-8s at most %-8s %s", duration(median(all)), duration(slices.Max(all)), part.what))
		}
	}
}

// sentence makes a finding a sentence.
func sentence(what string) string {
	if what == "" {
		return what
	}
	if last := what[len(what)-1]; last != '.' && last != '"' {
		what += "."
	}
	return strings.ToUpper(what[:1]) + what[1:]
}
