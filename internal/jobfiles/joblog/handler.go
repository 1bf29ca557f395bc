package joblog

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Handler returns a handler that hands records to next, and adds records of level info
// and above to the log.
func (l *Log) Handler(next slog.Handler) slog.Handler {
	if l == nil {
		return next
	}
	return &handler{log: l, next: next}
}

// handler writes records to two places.
type handler struct {
	log  *Log
	next slog.Handler
	with []func(slog.Handler) slog.Handler // attributes that the logger adds to each record
}

// leastKept is the least level of the records that are kept.
const leastKept = slog.LevelInfo

// withoutHead leaves out the parts of a line that are elsewhere: its level and its message.
func withoutHead(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	_, isLevel := a.Value.Any().(slog.Level)
	if a.Key == slog.LevelKey && isLevel || a.Key == slog.MessageKey && a.Value.Kind() == slog.KindString && a.Value.String() == "" {
		return slog.Attr{}
	}
	return a
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= leastKept || h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= leastKept {
		h.keep(ctx, r)
	}
	if h.next.Enabled(ctx, r.Level) {
		return h.next.Handle(ctx, r)
	}
	return nil
}

// keep adds a record to the log.
func (h *handler) keep(ctx context.Context, r slog.Record) {
	fields := slog.NewRecord(time.Time{}, r.Level, "", 0) // without a time it writes none
	r.Attrs(func(a slog.Attr) bool { fields.AddAttrs(a); return true })
	line := bytes.NewBufferString(r.Message + " ")
	_ = h.fieldsTo(line).Handle(ctx, fields) // into memory
	h.log.Add(strings.ToLower(r.Level.String()), bytes.TrimSpace(line.Bytes()))
}

// fieldsTo returns a handler that writes the fields of records. It is made for each one:
// most jobs log little, and should keep no handler while they wait.
func (h *handler) fieldsTo(line *bytes.Buffer) slog.Handler {
	var fields slog.Handler = slog.NewTextHandler(line, &slog.HandlerOptions{Level: leastKept, ReplaceAttr: withoutHead})
	for _, with := range h.with {
		fields = with(fields)
	}
	return fields
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.adding(h.next.WithAttrs(attrs), func(fields slog.Handler) slog.Handler { return fields.WithAttrs(attrs) })
}

func (h *handler) WithGroup(name string) slog.Handler {
	return h.adding(h.next.WithGroup(name), func(fields slog.Handler) slog.Handler { return fields.WithGroup(name) })
}

func (h *handler) adding(next slog.Handler, more func(slog.Handler) slog.Handler) slog.Handler {
	return &handler{log: h.log, next: next, with: append(slices.Clip(h.with), more)}
}
