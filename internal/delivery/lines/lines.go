// Package lines says of each log line of a delivery what it is about, and limits how many
// of one sort are written.
package lines

import (
	"context"
	"log/slog"
)

// Subject is what lines are about. Empty fields are left out.
type Subject struct {
	MessageID, JobID, Kind string
	Generation             int
}

// attrs is room for the attributes of a usual line.
type attrs [16]slog.Attr

// append appends the attributes of a subject.
func (s *Subject) append(to []slog.Attr) []slog.Attr {
	to = append(to, slog.String("message_id", s.MessageID))
	if s.JobID != "" {
		to = append(to, slog.String("job_id", s.JobID), slog.String("kind", s.Kind))
	}
	if s.Generation > 0 {
		to = append(to, slog.Int("generation", s.Generation))
	}
	return to
}

// Handler returns a handler that adds the subject to each line. A job logs few lines and
// may wait for hours: so, unlike [slog.Logger.With], the handler keeps nothing formatted.
func (s *Subject) Handler(next slog.Handler) slog.Handler { return handler{next, s} }

type handler struct {
	slog.Handler
	of *Subject
}

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	var room attrs
	all := h.of.append(room[:0])
	r.Attrs(func(a slog.Attr) bool { all = append(all, a); return true })
	line := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	line.AddAttrs(all...)
	return h.Handler.Handle(ctx, line)
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(more []slog.Attr) slog.Handler {
	return h.Handler.WithAttrs(append(h.of.append(nil), more...))
}

// WithGroup implements [slog.Handler]. The subject is outside of the group.
func (h handler) WithGroup(name string) slog.Handler {
	return h.Handler.WithAttrs(h.of.append(nil)).WithGroup(name)
}
