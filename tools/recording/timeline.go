package main

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// How time passes in the picture.
const (
	speed    = 3                      // the picture is that many times faster than the demo
	maxPause = 2 * time.Second        // a longer one of the demo is shortened to this
	step     = 200 * time.Millisecond // time between two frames of the picture
	hold     = 8 * time.Second        // how long the end stays before the picture repeats
)

// frame is the terminal's content during one step.
type frame struct {
	printed int      // so many of the printed lines
	picture []string // lines below them; nil when there are none
}

// timeline is a recording in steps of equal length.
type timeline struct {
	lines  []string // all that were printed
	frames []frame
}

// newTimeline lays a recording's events on steps. The last frame is the end.
func newTimeline(r recording) timeline {
	var t timeline
	var now, last time.Duration
	current := frame{}
	for _, e := range r.Events {
		now += min(e.At-last, maxPause)
		last = e.At
		for time.Duration(len(t.frames)+1)*step <= now/speed {
			t.frames = append(t.frames, current)
		}
		switch {
		case e.Text != "":
			t.lines = append(t.lines, strings.Split(strings.TrimSuffix(e.Text, "\n"), "\n")...)
			current.printed = len(t.lines)
		case e.End:
			current.picture = nil
		default:
			current.picture = strings.Split(e.Picture, "\n")
		}
	}
	t.frames = append(t.frames, current)
	return t
}

// height is the height of the highest picture, which all of them get, so that the
// lines above it do not jump.
func (t timeline) height() int {
	highest := slices.MaxFunc(t.frames, func(a, b frame) int { return cmp.Compare(len(a.picture), len(b.picture)) })
	return len(highest.picture)
}

// span is a line of the picture that does not change from one frame to another,
// which no longer has it.
type span struct {
	row, from, to int
	line          string
}

// spans returns the lines of all pictures, each as long as it stays the same.
// Row 0 is the first of the highest picture; lower ones end in its last row.
func (t timeline) spans() []span {
	height := t.height()
	open := make([]span, height)
	var spans []span
	for n := range len(t.frames) + 1 {
		var lines []string
		if n < len(t.frames) {
			lines = t.frames[n].picture
		}
		for row := range height {
			line := ""
			if above := height - len(lines); row >= above {
				line = lines[row-above]
			}
			if open[row].line == line {
				continue
			}
			if open[row].line != "" {
				open[row].to = n
				spans = append(spans, open[row])
			}
			open[row] = span{row: row, from: n, line: line}
		}
	}
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return spans
}
