package main

import (
	"errors"
	"fmt"
	"html"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Sizes of the picture, in its own units.
const (
	cellWidth  = 8.0
	cellHeight = 17
	margin     = 12
	baseline   = 13 // of a line's text, below its top
)

// style is the same for all pictures: without animation it shows the end.
const style = `svg{color-scheme:light dark;--paper:#f6f8fa;--ink:#1f2328;--quiet:#818b98;--green:#1a7f37;--yellow:#bf8700;--red:#d1242f}
@media(prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--quiet:#6e7681;--green:#3fb950;--yellow:#d29922;--red:#f85149}}
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:var(--ink)}
.paper{fill:var(--paper)}.q{fill:var(--quiet)}.g{fill:var(--green)}.y{fill:var(--yellow)}.r{fill:var(--red)}` +
	`.b{font-weight:bold}rect.q{opacity:.35}
.f{visibility:hidden}
@media(prefers-reduced-motion:reduce){.f,.s{animation:none!important}}
`

// writeSVG draws a recording: an animation without scripts that repeats.
func writeSVG(w io.Writer, r recording) error {
	t := newTimeline(r)
	if len(t.lines) == 0 {
		return errors.New("nothing was printed")
	}
	p := painter{timeline: t, height: t.height()}
	p.total = len(t.frames) + int(hold/step)
	width, height := columns*cellWidth+2*margin, rows*cellHeight+2*margin
	p.print(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %d" role="img">`+"\n", width, height)
	p.print("<title>make demo, at %d times its speed</title>\n<style>\n%s", speed, style)
	p.keyframes()
	p.print(`</style>`+"\n"+`<clipPath id="c"><rect width="%g" height="%d"/></clipPath>`+"\n", columns*cellWidth, rows*cellHeight)
	p.print(`<rect class="paper" width="%g" height="%d" rx="8"/>`+"\n", width, height)
	p.print(`<g transform="translate(%d %d)"><g clip-path="url(#c)">`+"\n", margin, margin)
	p.printed()
	p.pictures()
	p.print("</g></g>\n</svg>\n")
	_, err := io.WriteString(w, p.out.String())
	return err
}

// painter writes the picture of a timeline.
type painter struct {
	timeline

	height int // of the pictures, in lines
	total  int // steps until the animation repeats
	out    strings.Builder
}

func (p *painter) print(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

// percent is a step as a part of the animation. It is exact enough that a line ends
// when the next one begins.
func (p *painter) percent(step int) string { return trim(100 * float64(step) / float64(p.total)) }

func trim(number float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.4f", number), "0"), ".")
}

// scroll is how far the printed lines are moved down in a frame, so that the
// last of them is above the picture or at the terminal's end.
func (p *painter) scroll(f frame) int {
	room := rows
	if f.picture != nil {
		room -= p.height
	}
	return (room - f.printed) * cellHeight
}

// keyframes writes the style sheet's animations: s scrolls the printed lines, vN
// shows something for N steps, from a delay on.
func (p *painter) keyframes() {
	end := p.frames[len(p.frames)-1]
	duration := trim((time.Duration(p.total) * step).Seconds())
	p.print(".s{transform:translateY(%dpx);animation:s %ss step-end infinite}\n@keyframes s{", p.scroll(end), duration)
	last := rows * cellHeight * 2 // none
	for n, f := range p.frames {
		if y := p.scroll(f); y != last {
			p.print("%s%%{transform:translateY(%dpx)}", p.percent(n), y)
			last = y
		}
	}
	p.print("}\n.f{animation:%ss step-end infinite}\n", duration)
	var lengths, starts []int
	for _, s := range append(p.spans(), p.shown()) {
		lengths, starts = append(lengths, s.to-s.from), append(starts, s.from)
	}
	for _, n := range sorted(lengths) {
		p.print(".v%d{animation-name:v%d}@keyframes v%d{0%%{visibility:visible}%s%%{visibility:hidden}}\n", n, n, n, p.percent(n))
	}
	for _, n := range sorted(starts) {
		p.print(".t%d{animation-delay:%ss}", n, trim((time.Duration(n) * step).Seconds()))
	}
	p.print("\n")
}

func sorted(numbers []int) []int {
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// shown is the time in which there is a picture.
func (p *painter) shown() span {
	has := func(f frame) bool { return f.picture != nil }
	from := max(slices.IndexFunc(p.frames, has), 0)
	to := from
	for n, f := range p.frames {
		if has(f) {
			to = n + 1
		}
	}
	return span{from: from, to: to}
}

// printed draws all printed lines, one below the other.
func (p *painter) printed() {
	p.print(`<g class="s">` + "\n")
	for n, line := range p.lines {
		p.line(n*cellHeight, line)
	}
	p.print("</g>\n")
}

// pictures draws the lines of all pictures, each visible in its time only. They
// cover printed lines that are not to be seen yet.
func (p *painter) pictures() {
	top := (rows - p.height) * cellHeight
	window := p.shown()
	p.print(`<rect class="paper f v%d t%d" y="%d" width="%g" height="%d"/>`+"\n", window.to-window.from, window.from, top, columns*cellWidth,
		p.height*cellHeight)
	group := span{}
	for n, s := range p.spans() {
		if n == 0 || s.from != group.from || s.to != group.to {
			if n > 0 {
				p.print("</g>\n")
			}
			p.print(`<g class="f v%d t%d">`, s.to-s.from, s.from)
			group = s
		}
		p.line(top+s.row*cellHeight, s.line)
	}
	if group.to > 0 {
		p.print("</g>\n")
	}
}

// line draws a line of text with its colors: block characters as rectangles,
// the rest as text that keeps its columns in every font.
func (p *painter) line(y int, line string) {
	column := 0
	for _, r := range runs(line) {
		width := utf8.RuneCountInString(r.text)
		text := strings.TrimLeft(r.text, " ")
		first := column + width - utf8.RuneCountInString(text)
		text = strings.TrimRight(text, " ")
		length := float64(utf8.RuneCountInString(text)) * cellWidth
		class := ""
		if r.class != "" {
			class = ` class="` + r.class + `"`
		}
		switch {
		case text == "":
		case r.block:
			p.print(`<rect%s x="%g" y="%d" width="%g" height="%d"/>`, class, float64(first)*cellWidth, y+3, length, cellHeight-5)
		default:
			p.print(`<text%s x="%g" y="%d" textLength="%g">%s</text>`, class, float64(first)*cellWidth, y+baseline, length, html.EscapeString(text))
		}
		column += width
	}
	p.print("\n")
}

// textRun is a piece of a line of one style.
type textRun struct {
	text, class string
	block       bool // it consists of block characters
}

// sequence is an escape sequence that changes how text looks.
var sequence = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// classes are the style sheet's names for the attributes in use.
var classes = map[string]string{"1": "b", "2": "q", "31": "r", "32": "g", "33": "y"}

// runs splits a line by its escape sequences, and block characters from text.
func runs(line string) []textRun {
	var all []textRun
	class := ""
	add := func(text string) {
		for text != "" {
			block := strings.ContainsAny(firstRune(text), "█▓░")
			end := strings.IndexFunc(text, func(r rune) bool { return strings.ContainsRune("█▓░", r) != block })
			if end < 0 {
				end = len(text)
			}
			all = append(all, textRun{text: text[:end], class: class, block: block})
			text = text[end:]
		}
	}
	for {
		found := sequence.FindStringSubmatchIndex(line)
		if found == nil {
			add(line)
			return all
		}
		add(line[:found[0]])
		var names []string
		for attribute := range strings.SplitSeq(line[found[2]:found[3]], ";") {
			if name := classes[attribute]; name != "" {
				names = append(names, name)
			}
		}
		class = strings.Join(names, " ")
		line = line[found[1]:]
	}
}

func firstRune(text string) string {
	_, size := utf8.DecodeRuneInString(text)
	return text[:size]
}
