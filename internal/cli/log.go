package cli

import (
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/plaintext"
)

// Log are the flags that say what is logged and how.
type Log struct {
	LogLevel  string `help:"Least important level to log: ${enum}." enum:"debug,info,warn,error" default:"info" group:"Log"`
	LogFormat string `help:"Form of the log: ${enum}. auto is text on a terminal and JSON elsewhere." enum:"auto,text,json" default:"auto" group:"Log"`
}

// OpenLog returns a logger that writes to out and is never held up by it for long: a
// program behind a pipe may hang. Lines that have no room then are dropped, and
// counted in a line of their own later. closeLog waits a second for what was not
// written yet.
func (l *Log) OpenLog(out io.Writer) (log *slog.Logger, closeLog func()) {
	direct := l.Logger(out)
	o := newOutlet(out, func(lines int) {
		direct.Warn("log lines were dropped: they were not read in time", "lines", lines)
	})
	return slog.New(l.handler(o, IsTerminal(out))), o.close
}

// Logger returns a logger that writes to out.
func (l *Log) Logger(out io.Writer) *slog.Logger { return slog.New(l.handler(out, IsTerminal(out))) }

func (l *Log) handler(out io.Writer, terminal bool) slog.Handler {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.LogLevel)) // one of the enum
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if l.LogFormat == "json" || l.LogFormat == "auto" && !terminal {
		return slog.NewJSONHandler(out, options)
	}
	return slog.NewTextHandler(out, options)
}

// readable makes values fit for people and queries: an error is one line that
// says what it means, a duration is text with its unit, and text of untrusted
// origin cannot command a terminal.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case error:
		a.Value = slog.StringValue(plaintext.Block(azure.Explain(v)))
	case string:
		a.Value = slog.StringValue(plaintext.Block(v))
	case time.Duration:
		a.Value = slog.StringValue(v.Round(time.Microsecond).String())
	}
	return a
}

// IsTerminal reports whether a stream is a terminal. The null device is none.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
