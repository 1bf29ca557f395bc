package lanes

import (
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"time"
)

// Width is the width of a track in the coordinates of its bars. The style stretches it.
const Width = 1000

// Colours is how many classes of colours there are: c0 to c7.
const Colours = 8

// Track is a row of bars.
type Track struct {
	Name  string // shown before the row
	Label string // the row in words
	Bars  []Bar
}

// Bar is a part of a row or of a chart: a box, or marks if Marks is a path. Y and H are for
// charts; boxes of a row have its height.
type Bar struct {
	Class string
	X, W  string
	Y, H  string
	Marks string
	Title string
}

//go:embed shared.html
var sharedText string

var shared = template.Must(template.New("shared").Parse(sharedText))

// Template parses a page. It may call the shared templates: head, palette, style, zoom, track, bars.
func Template(name, text string) *template.Template {
	return template.Must(template.Must(shared.Clone()).New(name).Parse(text))
}

// Scale is the time of a whole track.
type Scale time.Duration

// X is a moment in the coordinates of a track.
func (s Scale) X(t time.Duration) string {
	return fmt.Sprintf("%.2f", Width*math.Min(1, float64(t)/float64(s)))
}

// Wide is the width of a time, a hair at least.
func (s Scale) Wide(from, to time.Duration) string {
	return fmt.Sprintf("%.2f", math.Max(0.4, Width*float64(min(to, time.Duration(s))-from)/float64(s)))
}

// Box is a bar of a row.
func (s Scale) Box(class string, from, to time.Duration, title string) Bar {
	return Bar{Class: class, X: s.X(from), W: s.Wide(from, to), Title: title}
}

// Mark is a line across a row.
func (s Scale) Mark(class string, at time.Duration, title string) Bar {
	return Bar{Class: class, Marks: "M" + s.X(at) + " 0v20", Title: title}
}
