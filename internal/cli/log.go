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

// Log are the flags for the log.
type Log struct {
	LogLevel  string `help:"Least important level to log: ${enum}." enum:"debug,info,warn,error" default:"info" group:"Log"`
	LogFormat string `help:"Form of the log: ${enum}. auto is text on a terminal and JSON elsewhere." enum:"auto,text,json" default:"auto" group:"Log"`
}

// OpenLog returns a logger that writes to out and never blocks for long: a program
// behind a pipe may hang. Lines that do not fit into a buffer are then dropped, and a
// later line reports how many. closeLog waits up to a second for the buffered lines.
func (l *Log) OpenLog(out io.Writer) (log *slog.Logger, closeLog func()) {
	direct := l.Logger(out)
	w := newAsyncWriter(out, func(lines int) {
		direct.Warn("log lines were dropped: they were not read in time", "lines", lines)
	})
	return slog.New(l.handler(w, IsTerminal(out))), w.close
}

// Logger returns a logger that writes to out.
func (l *Log) Logger(out io.Writer) *slog.Logger { return slog.New(l.handler(out, IsTerminal(out))) }

func (l *Log) handler(out io.Writer, terminal bool) slog.Handler {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.LogLevel)) // one of the enum
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: formatValue}
	if l.LogFormat == "json" || l.LogFormat == "auto" && !terminal {
		return slog.NewJSONHandler(out, options)
	}
	return slog.NewTextHandler(out, options)
}

// formatValue makes values fit for people and queries: an error becomes one line
// with its explanation, a duration text with its unit, and text of untrusted origin
// cannot control a terminal.
func formatValue(_ []string, a slog.Attr) slog.Attr {
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
