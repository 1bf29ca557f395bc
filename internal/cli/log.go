package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// Log are the flags for the log.
type Log struct {
	LogLevel  string `help:"Least important level to log: ${enum}." enum:"debug,info,warn,error" default:"info" group:"Log"`
	LogFormat string `help:"${about_log_format}" enum:"auto,text,json" default:"auto" group:"Log"`
}

// OpenLog returns a logger that writes to out and never blocks for long: a program
// behind a pipe may hang. Lines that do not fit into a buffer are then dropped, and a
// later line reports how many. closeLog waits up to a second for the buffered lines. The end of
// the log is also kept in tail, unless that is nil.
func (l *Log) OpenLog(out io.Writer, tail *Tail) (log *slog.Logger, closeLog func()) {
	direct := l.Logger(out)
	w := newAsyncWriter(out, func(lines int) {
		direct.Warn("log lines were dropped: they were not read in time", "lines", lines)
	})
	var to io.Writer = w
	if tail != nil {
		to = io.MultiWriter(tail, w)
	}
	return slog.New(writtenHandler{l.handler(to, IsTerminal(out)), w}), w.close
}

// writtenHandler is a handler whose lines are written when Handle returns. It waits for
// that outside of the lock of the handler behind it, so that the lines of several
// goroutines are written together.
type writtenHandler struct {
	slog.Handler
	out *asyncWriter
}

// Handle implements [slog.Handler].
func (h writtenHandler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	h.out.sync()
	return err
}

// WithAttrs implements [slog.Handler].
func (h writtenHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return writtenHandler{h.Handler.WithAttrs(attrs), h.out}
}

// WithGroup implements [slog.Handler].
func (h writtenHandler) WithGroup(name string) slog.Handler {
	return writtenHandler{h.Handler.WithGroup(name), h.out}
}

// Logger returns a logger that writes to out.
func (l *Log) Logger(out io.Writer) *slog.Logger { return slog.New(l.handler(out, IsTerminal(out))) }

func (l *Log) handler(out io.Writer, terminal bool) slog.Handler {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.LogLevel)) // one of the enum
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: FormatValue}
	if l.LogFormat == "json" || l.LogFormat == "auto" && !terminal {
		return slog.NewJSONHandler(plainJSON{out}, options)
	}
	return slog.NewTextHandler(out, options)
}

// plainJSON escapes text that a terminal could take for a command in the values that
// FormatValue leaves to encoding/json.
type plainJSON struct{ out io.Writer }

// Write implements [io.Writer].
func (w plainJSON) Write(line []byte) (int, error) {
	if _, err := w.out.Write(plaintext.JSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// FormatValue makes values fit for people and queries: an error becomes one line
// with its explanation, a duration text with its unit, and text of untrusted origin
// cannot control a terminal. Attributes without a value are left out: empty texts, the
// zero time, no error.
func FormatValue(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindTime:
		if a.Value.Time().IsZero() {
			return slog.Attr{}
		}
	case slog.KindString:
		if a.Value.String() == "" {
			return slog.Attr{}
		}
		a.Value = slog.StringValue(plaintext.Block(a.Value.String()))
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().Round(time.Microsecond).String())
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case slog.Level:
			a.Value = slog.StringValue(v.String()) // the JSON handler's text, without encoding/json
		case error:
			a.Value = slog.StringValue(plaintext.Block(azure.Explain(v)))
		case nil:
			return slog.Attr{}
		}
	default: // numbers
	}
	return a
}

// IsTerminal reports whether a stream is a terminal. The null device is none.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// CanDraw reports whether a stream is a terminal that can move its cursor.
func CanDraw(stream any) bool {
	kind := os.Getenv("TERM")
	return kind != "" && kind != "dumb" && IsTerminal(stream)
}
