package cli

import (
	"io"
	"sync"
	"time"
)

const (
	// writePatience is how long writing may take before callers stop waiting for it. A
	// reader of the log takes microseconds.
	writePatience = 50 * time.Millisecond

	// bufferSize is how many bytes are kept for a reader that has fallen behind.
	// Lines that do not fit are dropped.
	bufferSize = 1 << 20

	// closePatience is how long a program waits at its end for its log to be read.
	closePatience = time.Second
)

// asyncWriter writes log lines without blocking for long: the program behind a pipe
// or a socket may hang, and a worker with running jobs must not hang with it. While
// the reader keeps up, a line is written when sync returns, so that a crash loses none
// that was logged. Lines that come during a write are written together, and lines that
// are not read in time wait in a buffer.
type asyncWriter struct {
	out     io.Writer
	dropped func(lines int) // logs how many lines were lost
	wakeup  chan struct{}   // holds one: there are lines, or the end
	idle    chan struct{}   // closed at the end, when all is written

	mu      sync.Mutex
	pending []byte        // lines that are not being written yet
	writing int           // bytes that are
	written chan struct{} // closed when the line that came last is written; nil before the first
	lost    int           // lines
	behind  bool          // writing takes too long: no caller waits
	ended   bool
}

func newAsyncWriter(out io.Writer, dropped func(lines int)) *asyncWriter {
	w := &asyncWriter{out: out, dropped: dropped, wakeup: make(chan struct{}, 1), idle: make(chan struct{})}
	go w.run()
	return w
}

// Write implements [io.Writer]. It only takes the line: see sync. It never fails: there
// is no place to report it.
func (w *asyncWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.writing+len(w.pending)+len(line) > bufferSize {
		w.lost++
		return len(line), nil
	}
	if len(w.pending) == 0 {
		w.written = make(chan struct{})
	}
	w.pending = append(w.pending, line...)
	return len(line), nil
}

// sync waits until the lines that were taken are written, unless that takes too long.
func (w *asyncWriter) sync() {
	w.mu.Lock()
	written, behind := w.written, w.behind
	w.mu.Unlock()
	w.wake()
	if behind || written == nil {
		return
	}
	patience := time.NewTimer(writePatience)
	defer patience.Stop()
	select {
	case <-written:
	case <-patience.C:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.behind = true
	}
}

// close waits until all is written, for at most closePatience.
func (w *asyncWriter) close() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.wake()
	select {
	case <-w.idle:
	case <-time.After(closePatience):
	}
}

func (w *asyncWriter) wake() {
	select {
	case w.wakeup <- struct{}{}:
	default:
	}
}

// run writes the pending lines until the end.
func (w *asyncWriter) run() {
	defer close(w.idle)
	for range w.wakeup {
		for w.writeAll() {
		}
		w.mu.Lock()
		lost, ended := w.lost, w.ended && len(w.pending) == 0
		w.lost, w.behind = 0, false
		w.mu.Unlock()
		if lost > 0 {
			w.dropped(lost)
		}
		if ended {
			return
		}
	}
}

// writeAll writes all lines that are pending, and returns false if there are none.
func (w *asyncWriter) writeAll() bool {
	w.mu.Lock()
	lines, written := w.pending, w.written
	w.pending, w.writing = nil, len(lines)
	w.mu.Unlock()
	if len(lines) == 0 {
		return false
	}
	_, _ = w.out.Write(lines) // there is no place to report it
	close(written)
	return true
}
