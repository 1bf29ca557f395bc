package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/spotworker/spotworker/internal/cli"
)

// printer is the output of a command: results on out, messages for people on err.
type printer struct {
	in          *bufio.Reader
	out, err    io.Writer
	json        bool
	width       int  // of the terminal in columns; 0 if out is not one
	interactive bool // whether questions can be asked
}

func newPrinter(f *flags, in io.Reader, out, err io.Writer) *printer {
	p := &printer{in: bufio.NewReader(in), out: out, err: err, json: f.Output == "json"}
	if file, ok := out.(*os.File); ok && cli.IsTerminal(out) {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			p.width = width
		}
	}
	p.interactive = cli.IsTerminal(in) && cli.IsTerminal(err)
	return p
}

// ask asks a question and reports whether the answer is yes. An end of the input is
// a no.
func (p *printer) ask(question string, args ...any) bool {
	fmt.Fprintf(p.err, question, args...)
	answer, _ := p.in.ReadString('\n') // what was typed before the end counts
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// note prints a remark for people.
func (p *printer) note(format string, args ...any) { fmt.Fprintf(p.err, format+"\n", args...) }

// line prints an object as a line of JSON, without HTML escaping.
func (p *printer) line(v any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("print a line: %w", err)
	}
	_, err := p.out.Write(text.Bytes())
	return err
}

// table returns a writer of tab-separated columns. The caller flushes it.
func (p *printer) table() *tabwriter.Writer { return tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0) }

// cut shortens a text to a number of columns, one per character.
func cut(text string, columns int) string {
	if columns <= 0 || utf8.RuneCountInString(text) <= columns {
		return text
	}
	return string([]rune(text)[:columns-1]) + "…"
}

// ago returns how long ago a time was, for people.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "?"
	}
	return span(now.Sub(t))
}

// span returns a duration for people, in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
