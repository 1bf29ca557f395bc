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

	"golang.org/x/term"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview"
)

// printer is the output of a command: results on out, messages for people on err.
type printer struct {
	in          *bufio.Reader
	out, err    io.Writer
	json        bool
	width       int  // of the terminal in columns; 0 if out is not one
	interactive bool // whether questions can be asked
	bars        bool // whether a bar can be drawn on err
}

func newPrinter(f *flags, in io.Reader, out, err io.Writer) *printer {
	p := &printer{in: bufio.NewReader(in), out: out, err: err, json: f.Output == "json"}
	if file, ok := out.(*os.File); ok && cli.IsTerminal(out) {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			p.width = width
		}
	}
	p.interactive = cli.IsTerminal(in) && cli.IsTerminal(err)
	p.bars = !p.json && cli.CanDraw(err)
	return p
}

// live reports whether a picture that changes can be shown.
func (p *printer) live() bool { return cli.CanDraw(os.Stdin) && cli.CanDraw(p.out) }

// lines prints lines.
func (p *printer) lines(lines []string) error {
	return p.raw([]byte(strings.Join(lines, "\n") + "\n"))
}

// raw prints bytes as they are.
func (p *printer) raw(content []byte) error {
	_, err := p.out.Write(content)
	return err
}

// pairs prints names and values in two columns, without those that have no value.
func (p *printer) pairs(rows [][2]string) error {
	t := p.table()
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
		}
	}
	return t.Flush()
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

// ago returns how long ago a time was, for people.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "?"
	}
	return overview.Span(now.Sub(t))
}
