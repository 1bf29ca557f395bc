package web

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
)

// moment is an event in a job's story.
type moment struct {
	At          time.Time
	What, Class string
	Clock       string // the time in UTC, with the day if the story has several
}

// run is a delivery in a job's story.
type run struct {
	client.Run
	logged bool // it is known from its log lines alone, so its times are theirs
	isLast bool
}

// storyOf returns the known deliveries of a job: from its record, and for deliveries without an entry in
// it from their lines of the log.
func storyOf(j client.Job, lines []client.LogLine) (runs []run) {
	of := map[int]*run{}
	for _, r := range j.Runs {
		of[r.Delivery] = &run{Run: r}
	}
	if last := of[j.Deliveries]; j.Deliveries > 0 && !j.ClaimedAt.IsZero() && last == nil {
		r := client.Run{Delivery: j.Deliveries, StartedAt: j.ClaimedAt, EndedAt: j.EndedAt}
		if j.Status == client.StatusDone || j.Status == client.StatusRunning {
			r.Worker = j.Owner
		}
		if j.Status.Ended() {
			r.Outcome = string(j.Status)
		}
		of[j.Deliveries] = &run{Run: r}
	}
	for _, l := range lines {
		switch r := of[l.Delivery]; {
		case l.LeftOut > 0 || l.At.IsZero():
		case r == nil:
			of[l.Delivery] = &run{client.Run{Delivery: l.Delivery, Worker: l.Worker, StartedAt: l.At, EndedAt: l.At}, true, false}
		case r.logged:
			r.EndedAt = l.At
		case r.Worker == "":
			r.Worker = l.Worker
		}
	}
	for _, r := range of {
		r.isLast = r.Delivery == j.Deliveries
		runs = append(runs, *r)
	}
	slices.SortFunc(runs, func(a, c run) int { return cmp.Compare(a.Delivery, c.Delivery) })
	return runs
}

// outcomes are the ends of deliveries in words.
var outcomes = map[string]string{
	"done": "done", "evicted": "evicted: handed over before its VM went",
	"interrupted": "handed over: its worker stopped, was drained, or the job took a break",
	"failed":      "failed, and is tried again", "poison": "dead-lettered", "cancelled": "cancelled",
	"lost":  "its worker died, or lost the job",
	"ended": "ended",
}

// tell makes the story of a job from its deliveries and the times of its record.
func (b *oneJob) tell(j client.Job, runs []run, skew time.Duration) {
	add := func(at time.Time, class, what string) {
		if !at.IsZero() {
			b.Story = append(b.Story, moment{At: at, What: what, Class: class})
		}
	}
	if b.Group != "" && !j.CreatedAt.Equal(j.ClaimedAt) {
		add(j.CreatedAt, "open", "put in group "+b.Group)
	}
	b.Older = len(runs) < j.Deliveries
	waits, next := j.CreatedAt, 1
	for _, r := range runs {
		if r.Delivery != next { // what the job did before is not known
			waits = time.Time{}
		}
		next = r.Delivery + 1
		name := fmt.Sprintf("delivery %d", r.Delivery)
		if r.Worker != "" {
			name += " on " + line(r.Worker)
		}
		switch {
		case r.Outcome == "again":
			add(r.StartedAt, "open", "put again by "+line(r.Worker)+", to run from scratch")
			waits = r.StartedAt
			continue
		case r.logged:
			add(r.StartedAt, "run", name+" logs its first line")
			add(r.EndedAt, "stop", fmt.Sprintf("last kept line of delivery %d", r.Delivery))
			waits, b.Older = time.Time{}, true
			continue
		case !waits.IsZero() && r.StartedAt.Sub(waits) >= time.Second:
			name += ", after a wait of " + overview.Span(r.StartedAt.Sub(waits))
		}
		add(r.StartedAt, "run", "claimed: "+name)
		if r.Checkpoints > 0 {
			add(r.CheckpointAt, "save", checkpointsInWords(r))
		}
		b.end(j, r, add)
		waits = r.EndedAt
	}
	if j.Status == client.StatusRunning {
		add(j.UpdatedAt.Add(skew), "save", "record written: the next worker would continue from its last checkpoint")
	}
	if j.Status.Ended() && !toldEnd(j, runs) {
		add(j.EndedAt, string(j.Status), string(j.Status))
	}
	slices.SortStableFunc(b.Story, func(a, c moment) int { return a.At.Compare(c.At) })
	b.setClocks()
	b.draw(j, runs, skew)
}

// setClocks sets the times of the story's moments.
func (b *oneJob) setClocks() {
	if len(b.Story) == 0 {
		return
	}
	format := "15:04:05"
	if b.Story[0].At.UTC().Format(time.DateOnly) != b.Story[len(b.Story)-1].At.UTC().Format(time.DateOnly) {
		format = "01-02 15:04:05"
	}
	for i, m := range b.Story {
		b.Story[i].Clock = m.At.UTC().Format(format)
	}
}

// toldEnd reports whether the last delivery tells the job's end.
func toldEnd(j client.Job, runs []run) bool {
	if len(runs) == 0 {
		return false
	}
	last := runs[len(runs)-1]
	return last.isLast && !last.EndedAt.IsZero() && last.Outcome == string(j.Status)
}

// checkpointsInWords says how many checkpoints a delivery made.
func checkpointsInWords(r run) string {
	if r.Checkpoints == 1 {
		return fmt.Sprintf("checkpoint of delivery %d", r.Delivery)
	}
	return fmt.Sprintf("last of %s checkpoints of delivery %d", overview.Number(r.Checkpoints), r.Delivery)
}

// end adds the end of a delivery to the story.
func (b *oneJob) end(j client.Job, r run, add func(at time.Time, class, what string)) {
	if r.Outcome == "" || r.EndedAt.IsZero() {
		return
	}
	what := cmp.Or(outcomes[r.Outcome], outcomes["ended"])
	if took := r.EndedAt.Sub(r.StartedAt); took >= time.Second {
		what += ", after " + overview.Span(took)
	}
	if r.Redone >= time.Second && r.Outcome != "done" && r.Outcome != "cancelled" {
		about := ""
		if r.Outcome == "lost" {
			about = "about "
		}
		what += fmt.Sprintf("; %s%s of its work is not in a checkpoint and is done again", about, overview.Span(r.Redone))
	}
	if r.Error != "" {
		what += ": " + line(r.Error)
	}
	at := r.EndedAt
	if r.isLast && r.Outcome == string(j.Status) && !j.EndedAt.IsZero() {
		at = j.EndedAt
	}
	add(at, r.Outcome, what)
}

// draw draws the story: waits pale, runs strong, parts that were done again in another colour, with dots
// above for evictions and ticks below for checkpoints. It begins with the first known delivery.
func (b *oneJob) draw(j client.Job, runs []run, skew time.Duration) {
	b.From, b.To = j.CreatedAt, j.EndedAt
	if len(runs) > 0 && runs[0].Delivery > 1 {
		b.From = runs[0].StartedAt
	}
	if b.To.IsZero() {
		b.To = j.ReadAt.Add(skew)
	}
	if b.From.IsZero() || !b.To.After(b.From) {
		return
	}
	d := drawing{from: b.From, to: b.To}
	d.WriteString(`<svg class="track" viewBox="0 0 1000 36" preserveAspectRatio="none" role="img" ` +
		`aria-label="Waits, runs, checkpoints and evictions of the job; the list has the same in words">` +
		`<rect class="room" x="0" width="1000" y="8" height="22"/>`)
	for _, r := range runs {
		end := r.EndedAt
		if r.isLast && end.IsZero() && j.Status == client.StatusRunning {
			end = b.To
		}
		if !end.IsZero() && r.Outcome != "again" {
			b.drawRun(&d, r, end)
		}
	}
	d.WriteString("</svg>")
	b.Track = template.HTML(d.String()) //nolint:gosec // numbers and escaped names
}

// drawRun draws a delivery.
func (b *oneJob) drawRun(d *drawing, r run, end time.Time) {
	d.bar("run", r.StartedAt, end, fmt.Sprintf("delivery %d on %s", r.Delivery, line(r.Worker)))
	if r.Redone > 0 && r.Outcome != "done" && r.Outcome != "cancelled" {
		d.bar("bad", end.Add(-min(r.Redone, end.Sub(r.StartedAt))), end, overview.Span(r.Redone)+" is done again")
		b.Redone = true
	}
	if r.Outcome != "" && end.Before(b.To) {
		d.mark("end", end, 8, 30, cmp.Or(outcomes[r.Outcome], outcomes["ended"]))
	}
	if r.Checkpoints > 0 {
		d.mark("save", r.CheckpointAt, 31, 36, checkpointsInWords(r))
		b.Saved = true
	}
	if r.Outcome == "evicted" {
		d.mark("eviction", end, 3, 3, "evicted")
		b.Evicted = true
	}
}

// drawing is an SVG with the time from left to right, 1,000 units wide.
type drawing struct {
	strings.Builder
	from, to time.Time
}

// at returns the place of a time.
func (d *drawing) at(t time.Time) float64 {
	return min(max(1000*float64(t.Sub(d.from))/float64(d.to.Sub(d.from)), 0), 1000)
}

// bar draws a span of time.
func (d *drawing) bar(class string, from, to time.Time, title string) {
	x := min(d.at(from), 996)
	fmt.Fprintf(d, `<rect class="%s" x="%.1f" width="%.1f" y="8" height="22"><title>%s</title></rect>`, class, x, max(d.at(to)-x, 4),
		template.HTMLEscapeString(title))
}

// mark draws a vertical line between two heights.
func (d *drawing) mark(class string, t time.Time, from, to int, title string) {
	x := d.at(t)
	fmt.Fprintf(d, `<line class="%s" x1="%.1f" x2="%.1f" y1="%d" y2="%d"><title>%s</title></line>`, class, x, x, from, to,
		template.HTMLEscapeString(title))
}
