// Package text prints what happens in the lab, with the time, and formats
// numbers for people.
package text

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Width is the width of a line of a [Narrator], without the time.
const Width = 69

// Narrator prints what happens, with the time since the start. It is safe for
// concurrent use.
type Narrator struct {
	start time.Time

	mu  sync.Mutex
	out io.Writer
}

// NewNarrator returns a narrator whose time starts now.
func NewNarrator(out io.Writer) *Narrator { return &Narrator{out: out, start: time.Now()} }

// Elapsed returns the time since the start.
func (n *Narrator) Elapsed() time.Duration { return time.Since(n.start) }

// Say prints one thing that happened, wrapped.
func (n *Narrator) Say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	stamp := fmt.Sprintf("%6.1f s  ", n.Elapsed().Seconds())
	for _, line := range Wrap(fmt.Sprintf(format, args...), Width) {
		fmt.Fprintln(n.out, stamp+line)
		stamp = strings.Repeat(" ", len(stamp))
	}
}

// Write prints a text unchanged. It implements [io.Writer].
func (n *Narrator) Write(text []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.out.Write(text)
}

// Wrap breaks a text between words into lines of at most width bytes. A longer
// word has a line of its own.
func Wrap(text string, width int) []string {
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

// Plural formats n with its noun; the plural has an s unless one is given.
func Plural(n int, noun string, plural ...string) string {
	switch {
	case n == 1:
	case len(plural) > 0:
		noun = plural[0]
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Duration formats a time with about three digits.
func Duration(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(100 * time.Microsecond).String()
	}
}

// Size formats a number of bytes.
func Size(bytes int64) string {
	const kib, mib = 1 << 10, 1 << 20
	switch {
	case bytes < kib:
		return fmt.Sprintf("%d B", bytes)
	case bytes < mib:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/kib)
	default:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/mib)
	}
}
