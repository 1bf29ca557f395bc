package joblog

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Document is the log of a job, as far as it is kept.
type Document struct {
	// Dropped counts lines of deliveries that no longer have a section.
	Dropped int

	// Sections are ordered by their generation.
	Sections []Section
}

// Section has the lines of one delivery.
type Section struct {
	Generation int       // of the claim, as in the job's record
	Worker     string    // its name
	Began      time.Time // by the worker's clock

	// Count is how many lines the delivery has logged, and Lines are the kept lines, by
	// their numbers.
	Count int
	Lines []Line
}

// Line is one line of a log, in its stored form: see [Line.Decode].
type Line struct {
	Number int // within its section, from 1
	text   string
}

// timeLayout is the layout of a section's beginning.
const timeLayout = "2006-01-02T15:04:05.000Z"

// Decode returns the content of a line: its source, the time since the section began, and
// its text, which may have any bytes.
func (l Line) Decode() (source string, after time.Duration, text string) {
	source, rest, ok := strings.Cut(l.text, " ")
	at, text, hasText := strings.Cut(rest, " ")
	ms, err := strconv.ParseInt(at, 10, 64)
	if !ok || !hasText || err != nil || ms < 0 || ms > maxAfter {
		return "", 0, unescape(l.text) // of a newer version
	}
	return sourceOf(source), time.Duration(ms) * time.Millisecond, unescape(text)
}

// maxAfter is the longest time since the beginning of a section, in milliseconds.
const maxAfter = int64(100 * 365 * 24 * time.Hour / time.Millisecond)

// codes are the short forms of the usual sources.
var codes = map[string]string{
	Stdout: "o", Stderr: "e", "debug": "D", "info": "I", "warn": "W", "error": "E",
}

// sourceOf returns the source of a code.
func sourceOf(code string) string {
	for source, short := range codes {
		if short == code {
			return source
		}
	}
	return code
}

// encodeLine returns a line in its stored form.
func encodeLine(source string, after time.Duration, text []byte) string {
	code, ok := codes[source]
	if !ok {
		code = word(source)
	}
	return code + " " + strconv.FormatInt(max(after.Milliseconds(), 0), 10) + " " + escape(text)
}

// word returns a source as one word of letters and digits.
func word(source string) string {
	const most = 16
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, source)
	if len(clean) < 2 { // one letter is a code
		return "other"
	}
	return clean[:min(len(clean), most)]
}

var escapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

func escape(text []byte) string {
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\\') < 0 {
		return string(text)
	}
	return escapes.Replace(string(text))
}

func unescape(text string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
			if text[i] == 'n' {
				b.WriteByte('\n')
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// header returns the line that begins a section.
func (s *Section) header() string {
	return fmt.Sprintf("# %d %s %s\n", s.Generation, s.Began.UTC().Format(timeLayout), oneWord(s.Worker))
}

func oneWord(name string) string {
	if name = strings.Join(strings.Fields(name), "_"); name == "" {
		return "?"
	}
	return name
}

// Encode returns the stored form of a document.
func (d Document) Encode() []byte {
	var b bytes.Buffer
	gap(&b, d.Dropped)
	for i := range d.Sections {
		s := &d.Sections[i]
		b.WriteString(s.header())
		next := 1
		for _, l := range s.Lines {
			gap(&b, l.Number-next)
			b.WriteString(l.text)
			b.WriteByte('\n')
			next = l.Number + 1
		}
		gap(&b, s.Count+1-next)
	}
	return b.Bytes()
}

// gap writes that so many lines are left out.
func gap(b *bytes.Buffer, lines int) {
	if lines > 0 {
		fmt.Fprintf(b, "-%d\n", lines)
	}
}

// maxLines bounds the numbers of lines that are read.
const maxLines = 1 << 53

// Parse reads a document. It accepts everything: what cannot be read is left out.
func Parse(text []byte) Document {
	var d Document
	for raw := range bytes.Lines(text) {
		line := string(bytes.TrimSuffix(raw, []byte("\n")))
		switch {
		case line == "":
		case strings.HasPrefix(line, "# "):
			if s, ok := parseHeader(line); ok {
				d.Sections = append(d.Sections, s)
			}
		case line[0] == '-':
			n, err := strconv.Atoi(line[1:])
			if err != nil || n < 0 || n > maxLines {
				continue
			}
			if s := d.last(); s != nil {
				s.Count = min(s.Count+n, maxLines)
			} else {
				d.Dropped = min(d.Dropped+n, maxLines)
			}
		default:
			if s := d.last(); s != nil {
				s.Count++
				s.Lines = append(s.Lines, Line{Number: s.Count, text: line})
			}
		}
	}
	return Merge(d, Document{}) // in order, and each section once
}

func (d *Document) last() *Section {
	if len(d.Sections) == 0 {
		return nil
	}
	return &d.Sections[len(d.Sections)-1]
}

func parseHeader(line string) (s Section, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 4 {
		return s, false
	}
	generation, err := strconv.Atoi(fields[1])
	began, timeErr := time.Parse(time.RFC3339, fields[2])
	if err != nil || timeErr != nil || generation < 1 || generation > maxLines {
		return s, false
	}
	return Section{Generation: generation, Began: began, Worker: fields[3]}, true
}

// Whole reports whether nothing is left out.
func (d Document) Whole() bool {
	for _, s := range d.Sections {
		if len(s.Lines) < s.Count {
			return false
		}
	}
	return d.Dropped == 0
}

// LacksBefore reports whether the document does not know all lines before the first line
// that end has of the last delivery.
func (d Document) LacksBefore(end Document) bool {
	last := end.last()
	if last == nil {
		return false
	}
	first := last.Count + 1
	if len(last.Lines) > 0 {
		first = last.Lines[0].Number
	}
	for _, s := range d.Sections {
		if s.Generation == last.Generation {
			return s.Count < first-1
		}
	}
	return first > 1
}

// Merge returns what two documents of one job have together.
func Merge(a, b Document) Document {
	merged := Document{Sections: make([]Section, 0, len(a.Sections)+len(b.Sections))}
	for _, s := range slices.Concat(a.Sections, b.Sections) {
		i, found := slices.BinarySearchFunc(merged.Sections, s.Generation, func(s Section, g int) int { return cmp.Compare(s.Generation, g) })
		if found {
			merged.Sections[i] = mergeSections(merged.Sections[i], s)
		} else {
			merged.Sections = slices.Insert(merged.Sections, i, s)
		}
	}
	merged.Dropped = max(a.droppedBeside(merged), b.droppedBeside(merged))
	return merged
}

// droppedBeside returns how many of the lines that d has no section for are in none of
// the sections of merged.
func (d Document) droppedBeside(merged Document) int {
	left := d.Dropped
	for _, s := range merged.Sections {
		if len(d.Sections) == 0 || s.Generation < d.Sections[0].Generation {
			left -= s.Count
		}
	}
	return max(left, 0)
}

// mergeSections returns the lines of two sections of one delivery.
func mergeSections(a, b Section) Section {
	lines := slices.Concat(a.Lines, b.Lines)
	slices.SortFunc(lines, func(x, y Line) int { return cmp.Or(cmp.Compare(x.Number, y.Number), y.compareVersion(x)) })
	a.Lines = slices.CompactFunc(lines, func(x, y Line) bool { return x.Number == y.Number })
	a.Count = max(a.Count, b.Count)
	return a
}

// compareVersion compares two versions of one line: a later one replaced it, and a shorter one
// was cut.
func (l Line) compareVersion(other Line) int {
	_, mine, _ := l.Decode()
	_, its, _ := other.Decode()
	return cmp.Or(cmp.Compare(mine, its), cmp.Compare(len(l.text), len(other.text)), cmp.Compare(l.text, other.text))
}
