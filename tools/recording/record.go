package main

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab/screen"
)

// The size of the recorded terminal. It is high enough for the demo's table.
const (
	columns = 84
	rows    = 48
)

// recording is the content of a terminal over time.
type recording struct {
	Events []event
}

// event is a change of the terminal's content, at a time since the beginning:
// a text that is printed, or the picture below it, which is drawn again.
type event struct {
	At      time.Duration
	Text    string `json:",omitempty"` // whole lines
	Picture string `json:",omitempty"` // with the escape sequences of its colors
	End     bool   `json:",omitempty"` // the picture is removed
}

// recorder records the demo: it is both its output and its display.
type recorder struct {
	out   io.Writer
	start time.Time

	mu      sync.Mutex
	events  []event
	partial string // of a line that has not ended
}

func newRecorder(out io.Writer) *recorder { return &recorder{out: out, start: time.Now()} }

// Write records printed text and passes it on. It implements [io.Writer].
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := r.partial + string(p)
	end := strings.LastIndexByte(text, '\n') + 1
	r.partial = text[end:]
	if end > 0 {
		r.add(event{Text: text[:end]})
	}
	return r.out.Write(p)
}

// Show records the fleet as the demo draws it on a terminal.
func (r *recorder) Show(scene screen.Scene) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(event{Picture: screen.Draw(scene, columns, rows)})
}

// End records that the fleet is no longer shown.
func (r *recorder) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(event{End: true})
}

func (r *recorder) add(e event) {
	e.At = time.Since(r.start)
	e.Text, e.Picture = withoutFolders(e.Text), withoutFolders(e.Picture)
	r.events = append(r.events, e)
}

func (r *recorder) recording() recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	return recording{Events: slices.Clone(r.events)}
}

// absolutePath is an absolute path of more than one element after a space or a
// bracket.
var absolutePath = regexp.MustCompile(`(^|[\s("])/(?:[\w.+-]+/)+([\w.+-]+)`)

// withoutFolders replaces absolute paths by their last elements.
func withoutFolders(text string) string { return absolutePath.ReplaceAllString(text, "$1$2") }
