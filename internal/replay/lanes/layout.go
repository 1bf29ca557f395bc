package lanes

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Sizes of the picture, in its own units.
const (
	width  = 640
	left   = 86 // of the lanes
	right  = width - 12
	top    = 58 // of the first lane
	title  = 30
	gap    = 8  // between two lanes
	high   = 16 // of a slot
	low    = 5  // of a slot in a picture of many
	tall   = 900
	below  = 40 // from the last lane to the figures
	figure = 84
)

// picture is the content of the picture.
type picture struct {
	Story

	Alone         bool // an image and not a part of a page
	Width, Height float64
	Left, Right   float64 // of the lanes
	Top, Bottom   float64
	Lanes         []lane
	Links         []link
	Letters       []text
	Notes         []note
	Ticks         []text
	Texts         []figureText
}

// lane is a VM: a row for each job that it runs at once.
type lane struct {
	Name  string
	Y     float64 // the middle
	Slots []slot
}

type slot struct {
	Y, H float64
	Bars []Bar
}

// link leads from the end of an interrupted run to the next run of its job.
type link struct{ Class, Path, X, Y string }

type text struct {
	X, Y float64
	Text string
}

// note is a mark with words for wide and for narrow pictures.
type note struct {
	X, Y              float64 // of the mark
	Class             string
	At                float64 // of the words
	Anchor            string
	Long, Short, Then string
}

type figureText struct {
	X float64
	Figure
}

// placed is a run with its place.
type placed struct {
	Run

	job, slot int
}

// Span is the width of the lanes.
func (p picture) Span() float64 { return p.Right - p.Left }

// Places in the picture.
func (p picture) Deep() float64        { return p.Bottom - p.Top }
func (p picture) PaperWidth() float64  { return p.Width - 1 }
func (p picture) PaperHeight() float64 { return p.Height - 1 }
func (p picture) HeadY() float64       { return p.Top - 10 }
func (p picture) ValueY() float64      { return p.Bottom + below + 22 }
func (p picture) NameY() float64       { return p.Bottom + below + 46 }
func (p picture) NoteY() float64       { return p.Bottom + below + 64 }

// Shades are the colours of links.
func (p picture) Shades() []string {
	var shades []string
	for n := range Colours {
		shades = append(shades, colour(n))
	}
	return shades
}

// x is a moment in the picture's coordinates.
func (p picture) x(t time.Duration) float64 {
	return p.Left + p.Span()*min(1, t.Seconds()/time.Duration(p.scale()).Seconds())
}

// picture lays the story out. A picture that is alone has a title.
func (s Story) picture(alone bool) picture {
	p := picture{Story: s, Alone: alone, Width: width, Left: left, Right: right, Top: top}
	if !alone {
		p.Top -= title
	}
	rows := s.place()
	colours := s.colours()
	middles := p.stack(rows, colours)
	p.Height = p.Bottom + below
	if len(s.Figures) > 0 {
		p.Height += figure
	}
	p.link(rows, colours, middles)
	for vm := range s.VMs {
		if n, ok := p.note(vm); ok {
			p.Notes = append(p.Notes, n)
		}
	}
	for at := time.Duration(0); p.x(at) < right-title/2; at += s.every(6) { // a later text would not fit
		p.Ticks = append(p.Ticks, text{X: p.x(at), Y: p.Bottom + 18, Text: fmt.Sprintf("%.0f s", at.Seconds())})
	}
	for n, f := range s.Figures {
		p.Texts = append(p.Texts, figureText{X: width * (float64(n) + 0.5) / float64(len(s.Figures)), Figure: f})
	}
	return p
}

// place gives each run a slot of its VM. Runs follow one another in a slot.
func (s Story) place() [][]placed {
	rows := make([][]placed, len(s.VMs))
	for n, job := range s.Jobs {
		for _, run := range job.Runs {
			rows[run.VM] = append(rows[run.VM], placed{Run: run, job: n})
		}
	}
	for _, row := range rows {
		slices.SortStableFunc(row, func(a, b placed) int { return cmp.Compare(a.From, b.From) })
		var free []time.Duration // when each slot is free
		for n, run := range row {
			at := slices.IndexFunc(free, func(t time.Duration) bool { return t <= run.From })
			if at < 0 {
				at = len(free)
				free = append(free, 0)
			}
			free[at] = max(run.To, run.StaleTo)
			row[n].slot = at
		}
	}
	return rows
}

// colours gives each interrupted job a colour. The others have one together.
func (s Story) colours() map[int]string {
	colours := map[int]string{}
	for n, job := range s.Jobs {
		if slices.ContainsFunc(job.Runs, Run.interrupted) {
			colours[n] = colour(len(colours))
		}
	}
	return colours
}

// letter names an interrupted job in the picture, if there are few.
func letter(n, of int) string {
	if of > 26 {
		return ""
	}
	return string(rune('A' + n))
}

// stack draws the lanes, one below the other. It returns the middle of each slot.
func (p *picture) stack(rows [][]placed, colours map[int]string) [][]float64 {
	counts := make([]int, len(rows))
	total := 0
	for vm, row := range rows {
		counts[vm] = 1
		for _, run := range row {
			counts[vm] = max(counts[vm], run.slot+1)
		}
		total += counts[vm]
	}
	each := max(low, min(high, tall/float64(max(1, total))))
	middles := make([][]float64, len(rows))
	y := p.Top
	for vm, row := range rows {
		l := lane{Name: p.VMs[vm].Name, Y: y + each*float64(counts[vm])/2}
		for n := range counts[vm] {
			l.Slots = append(l.Slots, slot{Y: y, H: each, Bars: p.life(vm)})
			middles[vm] = append(middles[vm], y+each/2)
			y += each
			for _, run := range row {
				if run.slot != n {
					continue
				}
				class := cmp.Or(colours[run.job], "calm")
				l.Slots[n].Bars = append(l.Slots[n].Bars, p.run(run.Run, class, p.Jobs[run.job].Name)...)
			}
		}
		p.Lanes = append(p.Lanes, l)
		y += gap
	}
	p.Bottom = y - gap
	return middles
}

// life draws the time of a VM, and the time in which its worker was frozen.
func (p *picture) life(vm int) []Bar {
	v, scale := p.VMs[vm], p.scale()
	bars := []Bar{scale.Box("life", v.From, cmp.Or(v.To, p.Took), "")}
	if v.Fate == Frozen {
		bars = append(bars, scale.Box("ice", v.Struck, cmp.Or(v.Thawed, p.Took), v.Name+" is frozen"))
	}
	return bars
}

// link draws the links and the letters of interrupted jobs.
func (p *picture) link(rows [][]placed, colours map[int]string, middles [][]float64) {
	byJob := map[int][]placed{}
	for _, row := range rows {
		for _, run := range row {
			if colours[run.job] != "" {
				byJob[run.job] = append(byJob[run.job], run)
			}
		}
	}
	named := 0
	for job := range p.Jobs {
		runs := byJob[job]
		slices.SortStableFunc(runs, func(a, b placed) int { return cmp.Compare(a.From, b.From) })
		name := letter(named, len(colours))
		if len(runs) > 0 {
			named++
		}
		for n, run := range runs {
			y := middles[run.VM][run.slot]
			if p.x(run.To)-p.x(run.From) > high {
				p.Letters = append(p.Letters, text{X: p.x(run.From) + 5, Y: y, Text: name})
			}
			if n == 0 || !runs[n-1].interrupted() {
				continue
			}
			before := runs[n-1]
			x0, y0, x1 := p.x(before.To), middles[before.VM][before.slot], p.x(run.From)
			bend := max(14, (x1-x0)/2)
			p.Links = append(p.Links, link{
				Class: colours[job], X: fmt.Sprintf("%.1f", x1), Y: fmt.Sprintf("%.1f", y),
				Path: fmt.Sprintf("M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f", x0, y0, x0+bend, y0, x1-bend, y, x1, y),
			})
		}
	}
}

// note marks the fate of a VM. The words stand where the lane is empty.
func (p *picture) note(vm int) (note, bool) {
	v := p.VMs[vm]
	long, short, then := p.words(vm)
	if long == "" {
		return note{}, false
	}
	n := note{
		X: p.x(v.Struck), Y: p.Lanes[vm].Y, Class: map[Fate]string{Killed: "killed", Frozen: "frozen", Evicted: "evicted"}[v.Fate],
		Long: long, Short: short, Then: then, Anchor: "start",
	}
	n.At = n.X + 15
	if v.Fate == Evicted {
		n.At = max(n.At, p.x(v.To)+8)
	}
	if n.X > p.Left+0.6*p.Span() {
		n.At, n.Anchor = n.X-15, "end"
	}
	return n, true
}
