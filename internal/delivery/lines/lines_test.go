package lines

import (
	"bytes"
	"log/slog"
	"testing"
)

// TestSubject: lines have the same form as those of a logger that was given the attributes
// by With.
func TestSubject(t *testing.T) {
	for _, row := range []struct {
		name    string
		subject Subject
		with    []any
	}{
		{"no job", Subject{MessageID: "m"}, []any{"message_id", "m"}},
		{"a job", Subject{MessageID: "m", JobID: "j", Kind: "k"}, []any{"message_id", "m", "job_id", "j", "kind", "k"}},
		{"of a claim", Subject{MessageID: "m", JobID: "j", Kind: "k", Generation: 3}, []any{"message_id", "m", "job_id", "j", "kind", "k", "generation", 3}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got, want bytes.Buffer
			logTo(slog.New(row.subject.Handler(base(&got))))
			logTo(slog.New(base(&want)).With(row.with...))
			if got.String() != want.String() {
				t.Errorf("lines:\n%swant:\n%s", &got, &want)
			}
		})
	}
}

func base(out *bytes.Buffer) slog.Handler {
	return slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
}

// logTo logs lines in each way that a logger has.
func logTo(log *slog.Logger) {
	log.Debug("left out")
	log.Info("plain")
	log.Warn("with some", "a", 1, "b", "two")
	many := make([]any, 0, 40)
	for _, key := range "abcdefghijklmnopqrst" {
		many = append(many, string(key), int(key))
	}
	log.Info("with many", many...)
	log.With("x", 1).Info("with x", "a", 1)
	log.WithGroup("g").Info("in a group", "a", 1)
	log.WithGroup("g").With("x", 1).Info("in a group, with x", "a", 1)
}
