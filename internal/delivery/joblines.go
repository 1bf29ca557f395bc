package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// lineSubject is the subject of the log lines of a delivery. Empty fields are left out.
type lineSubject struct {
	MessageID, JobID, Kind string
	Generation             int
}

// lineAttrs is room for the attributes of a usual line.
type lineAttrs [16]slog.Attr

// append appends the attributes of a subject.
func (s *lineSubject) append(to []slog.Attr) []slog.Attr {
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
func (s *lineSubject) Handler(next slog.Handler) slog.Handler { return subjectHandler{next, s} }

type subjectHandler struct {
	slog.Handler
	of *lineSubject
}

// Handle implements [slog.Handler].
func (h subjectHandler) Handle(ctx context.Context, r slog.Record) error {
	var room lineAttrs
	all := h.of.append(room[:0])
	r.Attrs(func(a slog.Attr) bool { all = append(all, a); return true })
	line := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	line.AddAttrs(all...)
	return h.Handler.Handle(ctx, line)
}

// WithAttrs implements [slog.Handler].
func (h subjectHandler) WithAttrs(more []slog.Attr) slog.Handler {
	return h.Handler.WithAttrs(append(h.of.append(nil), more...))
}

// WithGroup implements [slog.Handler]. The subject is outside of the group.
func (h subjectHandler) WithGroup(name string) slog.Handler {
	return h.Handler.WithAttrs(h.of.append(nil)).WithGroup(name)
}

const (
	// limitPeriod is for how long one line stands for all of its kind of job.
	limitPeriod = time.Minute

	// limitKinds bounds the kinds that have a line of their own: a message may name
	// any kind. Further ones share a line.
	limitKinds = 64
)

// lineLimit lets one line for each kind of job and minute through. 20,000 messages
// of a kind that no worker has would otherwise log a line each whenever they come
// round.
type lineLimit struct {
	mu    sync.Mutex
	lines map[string]*limitedLine
}

// limitedLine is a line that was let through, and how many were not since.
type limitedLine struct {
	at   time.Time
	more int
}

// Allow reports whether a line about a kind is due at now, and how many were left
// out since the one before.
func (l *lineLimit) Allow(kind string, now time.Time) (due bool, leftOut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = map[string]*limitedLine{}
	}
	line := l.lines[kind]
	if line == nil && len(l.lines) >= limitKinds {
		l.forget(now)
	}
	if line == nil && len(l.lines) >= limitKinds {
		kind = ""
		line = l.lines[kind]
	}
	switch {
	case line == nil:
		l.lines[kind] = &limitedLine{at: now}
		return true, 0
	case now.Sub(line.at) < limitPeriod:
		line.more++
		return false, 0
	}
	leftOut = line.more
	*line = limitedLine{at: now}
	return true, leftOut
}

// forget drops the lines whose time is over and that nothing was left out of.
func (l *lineLimit) forget(now time.Time) {
	for kind, line := range l.lines {
		if now.Sub(line.at) >= limitPeriod && line.more == 0 {
			delete(l.lines, kind)
		}
	}
}
