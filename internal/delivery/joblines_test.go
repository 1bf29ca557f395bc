package delivery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"
)

// TestLineSubject: lines have the same form as the lines of a logger that was given the
// attributes by With.
func TestLineSubject(t *testing.T) {
	for _, row := range []struct {
		name    string
		subject lineSubject
		with    []any
	}{
		{"no job", lineSubject{MessageID: "m"}, []any{"message_id", "m"}},
		{"a job", lineSubject{MessageID: "m", JobID: "j", Kind: "k"}, []any{"message_id", "m", "job_id", "j", "kind", "k"}},
		{"of a first claim", lineSubject{MessageID: "m", JobID: "j", Kind: "k", Generation: 1}, []any{"message_id", "m", "job_id", "j",
			"kind", "k", "generation", 1}},
		{"of a claim", lineSubject{MessageID: "m", JobID: "j", Kind: "k", Generation: 3}, []any{"message_id", "m", "job_id", "j", "kind", "k",
			"generation", 3}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got, want bytes.Buffer
			logTo(slog.New(row.subject.Handler(base(&got))))
			logTo(slog.New(base(&want)).With(row.with...))
			if got.String() != want.String() {
				t.Errorf("lines:\n%swant:\n%s", &got, &want)
			}
			if err := row.subject.Handler(full{base(&got)}).Handle(t.Context(), slog.Record{}); err == nil {
				t.Error("a line that cannot be written is no error")
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

// full is a handler without room for a line.
type full struct{ slog.Handler }

func (full) Handle(context.Context, slog.Record) error { return errors.New("no room") }

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
func TestLineLimit(t *testing.T) {
	var l lineLimit
	at := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	lines := func(kind string, n int) (due, leftOut int) {
		for range n {
			ok, more := l.Allow(kind, at)
			if ok {
				due++
			}
			leftOut += more
		}
		return due, leftOut
	}
	if due, _ := lines("a", 20_000); due != 1 {
		t.Errorf("20,000 messages of one kind log %d lines, want 1", due)
	}
	if due, _ := lines("b", 2); due != 1 {
		t.Errorf("two of another kind log %d lines, want 1", due)
	}
	at = at.Add(limitPeriod)
	if due, leftOut := lines("a", 3); due != 1 || leftOut != 19_999 {
		t.Errorf("a minute later %d lines tell of %d more, want 1 and 19999", due, leftOut)
	}
	due := 0
	for i := range 10_000 {
		d, _ := lines(fmt.Sprint("kind-", i), 1)
		due += d
	}
	if due > limitKinds+1 || len(l.lines) > limitKinds+1 {
		t.Errorf("10,000 kinds log %d lines and are remembered as %d, want at most %d", due, len(l.lines), limitKinds+1)
	}
}

// TestLineLimitForgets: a line whose minute is over gives its room to another kind, unless lines were left out since.
func TestLineLimitForgets(t *testing.T) {
	var l, full, other lineLimit
	at := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	for i := range limitKinds {
		l.Allow(fmt.Sprint("kind-", i), at)
		full.Allow(fmt.Sprint("kind-", i), at)
		other.Allow(fmt.Sprint("kind-", i), at)
	}
	for i := range 2 { // while there is no room for other kinds
		if due, _ := other.Allow("kind-1", at.Add(limitPeriod)); due != (i == 0) {
			t.Errorf("line %d of a kind that has one, after a minute: due %t, want the first", i+1, due)
		}
	}
	for i, kind := range []string{"x", "y", "x"} {
		if due, _ := full.Allow(kind, at.Add(limitPeriod)); due != (i < 2) {
			t.Errorf("line %d after a minute, of %s: due %t; want a line of each kind", i+1, kind, due)
		}
	}
	l.Allow("kind-0", at)
	if first, _ := l.Allow("x", at); !first {
		t.Error("the first of the further kinds has no line")
	}
	if second, _ := l.Allow("y", at); second {
		t.Error("the second of the further kinds has a line, want one that both share")
	}
	at = at.Add(limitPeriod)
	if due, _ := l.Allow("x", at); !due || len(l.lines) != 3 { // kind-0, x, and the shared line
		t.Errorf("a minute later: due %t, %d lines; want a line of its own, and two that have more to tell", due, len(l.lines))
	}
	if due, leftOut := l.Allow("kind-0", at); !due || leftOut != 1 {
		t.Errorf("the first kind: due %t, %d left out; want one", due, leftOut)
	}
}
