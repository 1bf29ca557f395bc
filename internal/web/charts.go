package web

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
)

// Charts have a coordinate system of their own, which the style stretches to the room that
// there is. Texts are beside them, so that they keep their size.
const (
	chartWidth  = 600
	chartHeight = 120
)

// chart is a picture and the texts around it.
type chart struct {
	SVG        template.HTML
	Top        string // the value at the upper edge
	From, To   string // the times at its ends
	Label      string // the same in words
	Empty      bool
	Reading    bool // the jobs
	Marks      int  // evictions
	HasPoison  bool
	HasCancels bool
}

// ceiling is a round number that is not less than n, for the upper edge.
func ceiling(n int) int {
	if n <= 4 {
		return 4
	}
	unit := int(math.Pow10(len(fmt.Sprint(n)) - 1))
	for _, factor := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8, 10} {
		if top := int(factor * float64(unit)); top >= n {
			return top
		}
	}
	return 10 * unit
}

// canvas draws into an SVG.
type canvas struct{ b strings.Builder }

func newCanvas(label string) *canvas {
	c := &canvas{}
	fmt.Fprintf(&c.b, `<svg viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">`, chartWidth, chartHeight,
		template.HTMLEscapeString(label))
	for i := 1; i < 4; i++ {
		fmt.Fprintf(&c.b, `<line class="rule" x1="0" x2="%d" y1="%d" y2="%[2]d"/>`, chartWidth, i*chartHeight/4)
	}
	return c
}

func (c *canvas) html() template.HTML { return template.HTML(c.b.String() + "</svg>") } //nolint:gosec // numbers and escaped labels

// bar draws a bar from the height up, and returns where it ends.
func (c *canvas) bar(class string, x, width float64, from, n, top int) int {
	if n > 0 {
		high := chartHeight * float64(n) / float64(top)
		fmt.Fprintf(&c.b, `<rect class="%s" x="%.1f" width="%.1f" y="%.1f" height="%.1f"/>`, class, x, width,
			chartHeight*(1-float64(from)/float64(top))-high, high)
	}
	return from + n
}

// marks draws lines at the evictions.
func (c *canvas) marks(evicted []client.Worker, at func(time.Time) float64) (n int) {
	for _, w := range evicted {
		x := at(w.LastEvent.SeenAt)
		if x < 0 || x > chartWidth || w.LastEvent.Type != "Preempt" {
			continue
		}
		n++
		fmt.Fprintf(&c.b, `<line class="mark" x1="%.1f" x2="%.1f" y1="0" y2="%d"><title>%s evicted</title></line>`, x, x, chartHeight,
			template.HTMLEscapeString(line(w.Name)))
	}
	return n
}

// ended draws how many jobs ended in each of the last minutes.
func (v view) ended() chart {
	most, sum := 0, 0
	for i := range minutes {
		n := v.ends.done[i] + v.ends.poison[i] + v.ends.cancelled[i]
		most, sum = max(most, n), sum+n
	}
	c := chart{From: "1 h ago", To: "now", Top: overview.Number(ceiling(most)) + " / min", Empty: sum == 0, Reading: v.Reading,
		Label: fmt.Sprintf("Jobs that ended in each minute of the last hour: %s in all, at most %s in a minute", overview.Number(sum),
			overview.Number(most))}
	draw, width := newCanvas(c.Label), float64(chartWidth)/minutes
	for i := range minutes {
		x := float64(minutes-1-i) * width
		level := draw.bar("done", x+1, width-2, 0, v.ends.done[i], ceiling(most))
		level = draw.bar("bad", x+1, width-2, level, v.ends.poison[i], ceiling(most))
		draw.bar("off", x+1, width-2, level, v.ends.cancelled[i], ceiling(most))
		c.HasPoison, c.HasCancels = c.HasPoison || v.ends.poison[i] > 0, c.HasCancels || v.ends.cancelled[i] > 0
	}
	c.Marks = draw.marks(v.Evictions(), func(t time.Time) float64 {
		return chartWidth * (1 - v.At.Sub(t).Minutes()/minutes)
	})
	c.SVG = draw.html()
	return c
}

// load draws how many jobs waited and ran since the page's program started.
func (v view) load() chart {
	c := chart{To: "now", Empty: len(v.history) < 2}
	if c.Empty {
		c.Label, c.Top, c.From = "The first minutes are still to come", "4", "now"
		c.SVG = newCanvas(c.Label).html()
		return c
	}
	first, last, most := v.history[0].at, v.history[len(v.history)-1].at, 0
	for _, s := range v.history {
		most = max(most, s.waiting, s.running)
	}
	top, span := ceiling(most), max(last.Sub(first), time.Second)
	latest := v.history[len(v.history)-1]
	c.Label = fmt.Sprintf("Jobs that wait and run, over %s: now %s wait and %s run", overview.Brief(span), overview.Number(latest.waiting),
		overview.Number(latest.running))
	c.Top, c.From = overview.Number(top), overview.Brief(span)+" ago"
	draw := newCanvas(c.Label)
	at := func(t time.Time) float64 { return chartWidth * float64(t.Sub(first)) / float64(span) }
	paths := map[string]func(sample) (int, bool){
		"wait": func(s sample) (int, bool) { return s.waiting, s.hasQueues }, "run": func(s sample) (int, bool) { return s.running, s.hasJobs },
	}
	for _, class := range []string{"wait", "run"} {
		var points []string
		for _, s := range v.history {
			if n, ok := paths[class](s); ok {
				points = append(points, fmt.Sprintf("%.1f,%.1f", at(s.at), 1+(chartHeight-2)*(1-float64(n)/float64(top))))
			}
		}
		fmt.Fprintf(&draw.b, `<polyline class="%s" points="%s"/>`, class, strings.Join(points, " "))
	}
	c.Marks = draw.marks(v.Evictions(), at)
	c.SVG = draw.html()
	return c
}

// piece is a part of a bar.
type piece struct {
	class string
	n     float64
}

// stack draws the parts of a whole side by side.
func stack(label string, pieces ...piece) template.HTML {
	all := 0.0
	for _, p := range pieces {
		all += p.n
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="stack" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="%s">`,
		template.HTMLEscapeString(label))
	x := 0.0
	for _, p := range pieces {
		if all > 0 && p.n > 0 {
			fmt.Fprintf(&b, `<rect class="%s" x="%.3f" width="%.3f" y="0" height="8"/>`, p.class, x, 100*p.n/all)
			x += 100 * p.n / all
		}
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers and an escaped label
}
