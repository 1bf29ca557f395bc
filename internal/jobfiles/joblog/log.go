package joblog

import (
	"bytes"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// The usual sources of lines. The sources of a handler's logger are levels, in lower case.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Sizes of logs, in bytes.
const (
	// DefaultSize is how much a worker keeps of a job's log: some thousand lines, which
	// 10,000 jobs at once hold in 640 MiB. MinSize and MaxSize bound what tests choose.
	DefaultSize = 64 << 10
	MinSize     = 4 << 10
	MaxSize     = 1 << 20

	// MaxTail is how much of the end is in the job's record, percent-encoded.
	MaxTail = 1 << 10

	// maxLine is the longest line; of a longer one the middle is left out.
	maxLine = 2 << 10
)

// Log collects the lines of one delivery. The methods may be called from many
// goroutines, and on nil, which keeps nothing.
type Log struct {
	size    int
	began   time.Time
	section Section  // without its lines; Began is by the wall clock
	earlier Document // the record's lines of earlier deliveries

	mu     sync.Mutex
	lines  []Line // the kept ones
	bytes  int    // of them
	count  int
	open   string // the source of the last line, if a line of that source replaces it
	alone  bool   // writes of the record no longer include the log
	added  int    // calls of Add
	stored int    // calls of Add before the blob was written
}

// New returns the log of a delivery that begins now. It keeps so many bytes, and
// continues from the lines of earlier deliveries in the job's record.
func New(generation int, worker string, size int, recorded string) *Log {
	return &Log{
		size: size, began: time.Now(), section: Section{Generation: generation, Worker: worker, Began: time.Now()},
		earlier: Parse([]byte(recorded)),
	}
}

// Add adds a line of a source. The text may have any bytes. If it ends with a carriage return,
// a line of the same source that follows it at once replaces it.
func (l *Log) Add(source string, text []byte) {
	if l == nil {
		return
	}
	open := ""
	if bytes.HasSuffix(text, []byte("\r")) {
		open = source
	}
	if text = bytes.TrimRight(text, "\r\n"); len(text) > maxLine {
		text = []byte(plaintext.Middle(string(text), maxLine))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	after := time.Since(l.began)
	if last := len(l.lines) - 1; last >= 0 && l.open == source {
		_, before, _ := l.lines[last].Decode()
		after = max(after, before+time.Millisecond) // a reader takes the later of the two
		l.bytes -= len(l.lines[last].text) + 1
		l.lines, l.count = l.lines[:last], l.count-1
	}
	line := encodeLine(source, after, text)
	l.open = open
	l.added++
	l.count++
	l.lines = append(l.lines, Line{Number: l.count, text: line})
	l.bytes += len(line) + 1
	drop := 0
	for l.bytes > l.size {
		l.bytes -= len(l.lines[drop].text) + 1
		l.lines[drop] = Line{}
		drop++
	}
	l.lines = l.lines[drop:]
}

// document returns the lines of this delivery after the recorded lines of earlier ones. The
// caller holds mu, also while it reads the lines.
func (l *Log) document() Document {
	own := l.section
	if own.Lines, own.Count = l.lines, l.count; own.Count == 0 {
		return l.earlier
	}
	return Merge(l.earlier, Document{Sections: []Section{own}})
}

// encode returns the document for the delivery's blob, and how many calls of Add are in it.
func (l *Log) encode() (text []byte, added int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.document().Encode(), l.added
}

// wrote records that the blob has the lines of so many calls of Add.
func (l *Log) wrote(added int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored = max(l.stored, added)
}

// Tail returns the end of the log for the job's record.
func (l *Log) Tail() string {
	tail, _ := l.tail()
	return tail
}

// tail returns the end of the log, and whether that is all that this worker knows of it.
func (l *Log) tail() (text string, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == 0 && len(l.earlier.Sections) == 0 && l.earlier.Dropped == 0 {
		return "", true
	}
	d := l.document()
	t, whole := d.tail(MaxTail)
	return string(t.Encode()), whole
}

// LeaveRecord says that this delivery writes the job's record no more, because an operator
// cancelled the job: all lines then belong into the blob.
func (l *Log) LeaveRecord() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alone = true
}

// Pending reports whether the blob lacks lines that do not get into the record either.
func (l *Log) Pending() bool {
	if l == nil {
		return false
	}
	_, whole := l.tail()
	l.mu.Lock()
	defer l.mu.Unlock()
	return (!whole || l.alone) && l.added > l.stored
}

// marker is room for saying how many lines are left out.
const marker = len("-9007199254740992%0A")

// tail returns the last lines that fit into so many percent-encoded bytes, and whether
// those are all that d has. The last line is cut in the middle if it does not fit.
func (d Document) tail(limit int) (t Document, whole bool) {
	left, first, cut := limit-marker, len(d.Sections), false
	for fits := true; first > 0 && fits; first-- {
		s := d.Sections[first-1]
		lines, size := s.end(left)
		if first == len(d.Sections) && len(lines) == 0 && len(s.Lines) > 0 {
			lines, size = s.cutLast(left, size)
			cut = len(lines) > 0
		}
		if fits = len(lines) == len(s.Lines) && size <= left; len(lines) == 0 && !fits {
			break
		}
		s.Lines = lines
		t.Sections = append(t.Sections, s)
		left -= size
	}
	slices.Reverse(t.Sections)
	t.Dropped = d.Dropped
	for _, s := range d.Sections[:first] {
		t.Dropped += s.Count
	}
	return t, t.kept() == d.kept() && !cut
}

// kept returns how many lines a document has.
func (d Document) kept() (lines int) {
	for _, s := range d.Sections {
		lines += len(s.Lines)
	}
	return lines
}

// end returns the last lines of a section that fit into so many percent-encoded bytes,
// and the size of the section with them.
func (s *Section) end(left int) (lines []Line, size int) {
	const atEnds = 2 * marker // lines may be left out before the first and after the last
	from := len(s.Lines)
	for size = encodedSize(s.header()) + atEnds; from > 0; from-- {
		more := encodedSize(s.Lines[from-1].text + "\n")
		if from < len(s.Lines) && s.Lines[from].Number > s.Lines[from-1].Number+1 {
			more += marker
		}
		if size+more > left {
			break
		}
		size += more
	}
	return s.Lines[from:], size
}

// cutLast returns the last line of a section, cut to what is left beside the section's size,
// and the size with it.
func (s *Section) cutLast(left, size int) ([]Line, int) {
	last := s.Lines[len(s.Lines)-1]
	whole := last.text
	for most := left - size; most >= leastCut; most -= 8 {
		last.text = plaintext.Middle(whole, most)
		if all := size + encodedSize(last.text+"\n"); all <= left {
			return []Line{last}, all
		}
	}
	return nil, size
}

// leastCut is the least size of a cut line, which has its source and time at the beginning.
const leastCut = 64

// encodedSize is the size of a text in a record.
func encodedSize(text string) int { return len(url.QueryEscape(text)) }
