package joblog

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Handler returns a handler that hands records to next, and adds those of level info and
// above to the log.
func (l *Log) Handler(next slog.Handler) slog.Handler {
	if l == nil {
		return next
	}
	line := &lineBuffer{}
	return &handler{log: l, next: next, line: line, fields: slog.NewTextHandler(line, &slog.HandlerOptions{
		Level: slog.LevelInfo, ReplaceAttr: withoutHead,
	})}
}

// handler writes records to two places.
type handler struct {
	log    *Log
	next   slog.Handler
	fields slog.Handler // writes the fields of a record into line
	line   *lineBuffer
}

// lineBuffer holds the fields of one record.
type lineBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

// withoutHead leaves out what a line has in another place: its level and its message.
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
	return h.fields.Enabled(ctx, level) || h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if h.fields.Enabled(ctx, r.Level) {
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
	h.line.mu.Lock()
	defer h.line.mu.Unlock()
	h.line.Reset()
	_ = h.fields.Handle(ctx, fields) // into memory
	text := append([]byte(r.Message+" "), bytes.TrimSpace(h.line.Bytes())...)
	h.log.Add(strings.ToLower(r.Level.String()), bytes.TrimSpace(text))
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{log: h.log, next: h.next.WithAttrs(attrs), line: h.line, fields: h.fields.WithAttrs(attrs)}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{log: h.log, next: h.next.WithGroup(name), line: h.line, fields: h.fields.WithGroup(name)}
}
