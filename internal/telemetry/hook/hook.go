// Package hook runs a program of the operator when the worker logs an event: a scheduled event that
// names its VM, the end of a drain, a job in the poison queue, a queue that grows.
//
// The program gets the line of the log, whatever the format and the level of the log
// are. The worker never waits for the program before its own end: lines are queued, and
// dropped where the queue is full.
package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// events are the names of the events, by the message of the log.
var events = map[string]string{
	"scheduled event names this VM":     "notice",
	"drained":                           "drained",
	"message moved to the poison queue": "poison",
	"queue grows":                       "growth",
}

const (
	// closeLimit is how long the worker's end waits for programs that still run.
	closeLimit = 5 * time.Second

	// parallel is how many programs run at once, and queued how many events wait.
	parallel, queued = 4, 64

	// maxOutput bounds the output of a program that is kept for the log, in bytes.
	maxOutput = 300
)

// Hook passes events to a program.
type Hook struct {
	to         program
	log        *slog.Logger
	replace    func([]string, slog.Attr) slog.Attr // of the attributes of lines; see [slog.HandlerOptions]
	closeLimit time.Duration

	ctx     context.Context // of the programs that run
	kill    context.CancelFunc
	lines   chan []byte
	closing chan struct{}
	running sync.WaitGroup
}

// start returns a Hook that logs to log, and must be closed.
func start(to program, log *slog.Logger, closeLimit time.Duration) *Hook {
	h := &Hook{
		to: to, log: log, closeLimit: closeLimit,
		lines: make(chan []byte, queued), closing: make(chan struct{}),
	}
	h.ctx, h.kill = context.WithCancel(context.Background())
	for range parallel {
		h.running.Go(h.serve)
	}
	return h
}

// Handler returns a handler that does what next does, and passes the lines of events to
// the program.
func (h *Hook) Handler(next slog.Handler) slog.Handler {
	return handler{next: next, lines: slog.NewJSONHandler(h, &slog.HandlerOptions{ReplaceAttr: h.replace})}
}

// Close passes the events so far on, gives up after 5 s, and ignores further events.
func (h *Hook) Close() {
	close(h.closing)
	timer := time.AfterFunc(h.closeLimit, h.kill)
	defer timer.Stop()
	h.running.Wait()
	h.kill()
	if n := len(h.lines); n > 0 {
		h.log.Warn("events not passed on: the worker ended before its program for events", "lines", n)
	}
}

// Write takes a line. It does not wait.
func (h *Hook) Write(line []byte) (int, error) {
	select {
	case h.lines <- bytes.Clone(line):
	default:
		h.log.Warn("event not passed on: the program for events is too slow", "event", eventOf(line))
	}
	return len(line), nil
}

// eventOf returns the name of a line's event.
func eventOf(line []byte) string {
	var l struct {
		Message string `json:"msg"`
	}
	_ = json.Unmarshal(line, &l) // written by a handler of JSON
	return events[l.Message]
}

// serve passes each line on, until the Hook is closed and no line is left, or
// no time.
func (h *Hook) serve() {
	for h.ctx.Err() == nil {
		select {
		case line := <-h.lines:
			h.pass(line)
			continue
		default:
		}
		select {
		case line := <-h.lines:
			h.pass(line)
		case <-h.closing:
			if len(h.lines) == 0 {
				return
			}
		}
	}
}

// pass runs the program for a line.
func (h *Hook) pass(line []byte) {
	event := eventOf(line)
	begun := time.Now()
	if err := h.to.run(h.ctx, event, line); err != nil {
		h.log.Warn("program for events failed", "event", event, "error", err)
		return
	}
	h.log.Debug("event passed on", "event", event, "took", time.Since(begun))
}

// tail keeps the end of a program's output.
type tail struct{ last []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.last = append(t.last, p...)
	if over := len(t.last) - maxOutput; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	return len(p), nil
}

// explain adds the output to an error, as one printable line.
func (t *tail) explain(err error) error {
	text := plaintext.Line(strings.TrimSpace(strings.ToValidUTF8(string(t.last), "")))
	if text == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, text)
}

// handler passes the lines of events on.
type handler struct {
	next, lines slog.Handler
}

// Enabled implements [slog.Handler]: lines of events count at any level of the log.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if events[r.Message] != "" {
		_ = h.lines.Handle(ctx, r.Clone()) // a Hook takes every line
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{next: h.next.WithAttrs(attrs), lines: h.lines.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler {
	return handler{next: h.next.WithGroup(name), lines: h.lines.WithGroup(name)}
}
