package printed

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// TestLineBudget: a burst, then so many lines per second, and the burst again
// after a pause.
func TestLineBudget(t *testing.T) {
	var b lineLimit
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	ask := func(times int) (allowed, dropped int) {
		for range times {
			ok, lost := b.allow(now)
			if dropped += lost; ok {
				allowed++
			}
		}
		return allowed, dropped
	}
	for _, row := range []struct {
		after             time.Duration
		ask, allowed, was int
	}{
		{0, 10, 10, 0},
		{0, 1000, LinesBurst - 10, 0},
		{time.Second / LinesPerSec, 10, 1, 1000 - (LinesBurst - 10)},
		{time.Second, 100, LinesPerSec, 9},
		{time.Hour, 1000, LinesBurst, 100 - LinesPerSec},
		{time.Millisecond, 5, 0, 0},
	} {
		now = now.Add(row.after)
		if allowed, dropped := ask(row.ask); allowed != row.allowed || dropped != row.was {
			t.Errorf("%d lines %s later: %d allowed, %d said to be dropped, want %d, %d", row.ask, row.after, allowed, dropped, row.allowed, row.was)
		}
	}
	if got := b.dropped(); got != 1000-LinesBurst+5 {
		t.Errorf("dropped at the end = %d, want %d", got, 1000-LinesBurst+5)
	}
}

// TestLastWords: the words that end a program are whole behind a progress bar and at the end of a
// long line. A job's log has what a terminal shows now, and a worker's log whole lines.
func TestLastWords(t *testing.T) {
	long := strings.Repeat("x", 3*MaxLine)
	for name, row := range map[string]struct {
		writes       []string
		end          string // of standard error
		kept, logged []string
	}{
		"a bar": {[]string{"\r10%", "\r20%\r30%", "\rERROR: late\n"}, "ERROR: late", []string{"10%\r", "30%\r", "ERROR: late"},
			[]string{"ERROR: late"}},
		"a bar that ends": {[]string{"10%\r20%\r", "   \r", "\n", "a\n"}, "20%\na", []string{"20%\r", "20%\r", "20%", "a"}, []string{"20%",
			"a"}},
		"a bar to the end":  {[]string{"a\n10%\r20%\r"}, "a\n20%", []string{"a", "20%\r", "20%"}, []string{"a", "20%"}},
		"line feeds of DOS": {[]string{"a\r\nb\r\n\r\n"}, "a\nb", []string{"a", "b", ""}, []string{"a", "b"}},
		"a long line": {[]string{"first " + long + " last\n"}, plaintext.Middle("first "+long+" last", tailBytes),
			nil, []string{plaintext.Middle("first "+long+" last", MaxLine)}},
		"a line without end": {[]string{"what? "}, "what?", []string{"what? \r", "what? "}, []string{"what? "}},
	} {
		var kept, logged []string
		synced := make(chan struct{}, 10)
		o := &Output{log: slog.New(texts{&logged}), keep: func(_ string, line []byte) {
			if kept = append(kept, string(line)); bytes.HasSuffix(line, []byte("\r")) {
				synced <- struct{}{}
			}
		}}
		var cmd exec.Cmd
		if err := o.Attach(&cmd); err != nil {
			t.Fatal(err)
		}
		go func() {
			for _, text := range row.writes {
				_, _ = io.WriteString(cmd.Stderr, text)
				if !strings.HasSuffix(text, "\n") {
					<-synced // it was read
				}
			}
			_ = cmd.Stderr.(*os.File).Close()
		}()
		_ = cmd.Stdout.(*os.File).Close()
		o.writeEnds = nil // closed
		o.Started(true)
		if end := o.Finish(); end != row.end {
			t.Errorf("%s: the end = %.80q, want %.80q", name, end, row.end)
		}
		if row.kept != nil && !slices.Equal(kept, row.kept) || !slices.Equal(logged, row.logged) {
			t.Errorf("%s: kept %.80q and logged %.80q, want %.80q and %.80q", name, kept, logged, row.kept, row.logged)
		}
	}
}

// texts is a log of programs' output.
type texts struct{ of *[]string }

func (l texts) Enabled(context.Context, slog.Level) bool { return true }
func (l texts) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l texts) WithGroup(string) slog.Handler            { return l }
func (l texts) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "text" {
			*l.of = append(*l.of, a.Value.String())
		}
		return true
	})
	return nil
}
