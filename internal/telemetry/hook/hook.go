// Package hook runs a program of the operator when the worker logs an event: a scheduled
// event that names its VM, the end of a drain, a job in the poison queue.
//
// The program gets the line of the log, whatever the format and the level of the log
// are. It runs beside the worker, which never waits for it before its own end: lines are
// queued, and dropped where the queue is full.
package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/plaintext"
)

// Variable is the environment variable with the name of the event.
const Variable = "SPOTWORKER_EVENT"

// events are the names of the events, by the message of the log.
var events = map[string]string{
	"scheduled event names this VM":     "notice",
	"drained":                           "drained",
	"message moved to the poison queue": "poison",
}

const (
	// runLimit is how long the program may take for an event.
	runLimit = 10 * time.Second

	// closeLimit is how long the worker's end waits for the program.
	closeLimit = 5 * time.Second

	// parallel is how many events the program is run for at once, and queued how many wait.
	parallel, queued = 4, 64

	// maxOutput bounds the output of the program that is kept for the log, in bytes.
	maxOutput = 300
)

// Hook runs the program.
type Hook struct {
	program    string
	log        *slog.Logger
	runLimit   time.Duration
	closeLimit time.Duration

	ctx     context.Context // of the program's runs
	kill    context.CancelFunc
	lines   chan []byte
	closing chan struct{}
	running sync.WaitGroup
}

// New returns a Hook that runs a program: a path, or a name to look up in PATH. It
// takes no arguments. The Hook logs to log, and must be closed. An error says why the
// program cannot be run.
func New(program string, log *slog.Logger) (*Hook, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, err
	}
	return start(path, log, runLimit, closeLimit), nil
}

func start(program string, log *slog.Logger, runLimit, closeLimit time.Duration) *Hook {
	h := &Hook{
		program: program, log: log, runLimit: runLimit, closeLimit: closeLimit,
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
	return handler{next: next, lines: slog.NewJSONHandler(h, nil)}
}

// Close runs the program for the events so far, kills it after 5 s, and ignores further
// events.
func (h *Hook) Close() {
	close(h.closing)
	timer := time.AfterFunc(h.closeLimit, h.kill)
	defer timer.Stop()
	h.running.Wait()
	h.kill()
	if n := len(h.lines); n > 0 {
		h.log.Warn("events not passed on: the worker ended before the program for events", "lines", n)
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

// serve runs the program for each line, until the Hook is closed and no line is left, or
// no time.
func (h *Hook) serve() {
	for h.ctx.Err() == nil {
		select {
		case line := <-h.lines:
			h.run(line)
			continue
		default:
		}
		select {
		case line := <-h.lines:
			h.run(line)
		case <-h.closing:
			if len(h.lines) == 0 {
				return
			}
		}
	}
}

// run runs the program for a line.
func (h *Hook) run(line []byte) {
	event := eventOf(line)
	ctx, cancel := context.WithTimeout(h.ctx, h.runLimit)
	defer cancel()
	var output tail
	command := exec.CommandContext(ctx, h.program) //nolint:gosec // the operator named it
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(line), &output, &output
	command.Env = append(environment(), Variable+"="+event)
	command.WaitDelay = time.Second // for processes that the program leaves with its output
	begun := time.Now()
	err := command.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil // it ended well, and left a process in the background
	case ctx.Err() != nil:
		err = fmt.Errorf("killed after %s", time.Since(begun).Round(time.Millisecond))
	}
	if err != nil {
		h.log.Warn("program for events failed", "event", event, "error", output.explain(err))
		return
	}
	h.log.Debug("event passed on", "event", event, "took", time.Since(begun))
}

// passed are the variables of the worker's environment that the program gets. All others
// are withheld, credentials above all.
var passed = []string{
	"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"PATHEXT", "SystemRoot", "SystemDrive", "ComSpec", "TEMP", "TMP", "ProgramData", "ProgramFiles", "PSModulePath",
}

func environment() (variables []string) {
	for _, name := range passed {
		if value, ok := os.LookupEnv(name); ok {
			variables = append(variables, name+"="+value)
		}
	}
	return variables
}

// tail keeps the end of the program's output.
type tail struct{ last []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.last = append(t.last, p...)
	if over := len(t.last) - maxOutput; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	return len(p), nil
}

// explain adds the output to an error, as one printable line.
func (t *tail) explain(err error) string {
	text := plaintext.Line(strings.TrimSpace(strings.ToValidUTF8(string(t.last), "")))
	if text == "" {
		return err.Error()
	}
	return err.Error() + ": " + text
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
