package lab

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// tellWidth is how wide a told line is at most, in columns of its text.
const tellWidth = 69

// teller prints what happens, each line with the time since the start.
type teller struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func newTeller(out io.Writer) *teller { return &teller{out: out, start: time.Now()} }

// say prints one thing that happened, wrapped.
func (t *teller) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stamp := fmt.Sprintf("%6.1f s  ", time.Since(t.start).Seconds())
	for _, line := range wrap(fmt.Sprintf(format, args...), tellWidth) {
		fmt.Fprintln(t.out, stamp+line)
		stamp = strings.Repeat(" ", len(stamp))
	}
}

// Write prints a text as it stands. It implements [io.Writer].
func (t *teller) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.Write(text)
}

// wrap breaks a text between words into lines of at most width bytes. A longer
// word has a line of its own.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}
