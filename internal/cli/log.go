package cli

import (
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/spotworker/spotworker/internal/azure"
)

// Log are the flags that say what is logged and how.
type Log struct {
	LogLevel  string `help:"Least important level to log: ${enum}." enum:"debug,info,warn,error" default:"info" group:"Log"`
	LogFormat string `help:"Form of the log: ${enum}. auto is text on a terminal and JSON elsewhere." enum:"auto,text,json" default:"auto" group:"Log"`
}

// Logger returns a logger that writes to out.
func (l *Log) Logger(out io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.LogLevel)) // one of the enum
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if l.LogFormat == "json" || l.LogFormat == "auto" && !IsTerminal(out) {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

// readable makes values fit for people and queries: an error is one line that
// says what it means, a duration is text with its unit.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case error:
		a.Value = slog.StringValue(azure.Explain(v))
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
