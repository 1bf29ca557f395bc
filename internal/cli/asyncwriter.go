package cli

import (
	"io"
	"sync"
	"time"
)

const (
	// writePatience is how long a line may take before its caller stops waiting for it. A
	// reader of the log takes microseconds.
	writePatience = 50 * time.Millisecond

	// bufferSize is how many bytes are kept for a reader that has fallen behind.
	// What does not fit is dropped.
	bufferSize = 1 << 20

	// closePatience is how long a program waits at its end for its log to be read.
	closePatience = time.Second
)

// asyncWriter writes log lines without blocking for long: the program behind a pipe
// or a socket may hang, and a worker with running jobs must not hang with it. While
// the reader keeps up, each line is written before its Write returns, so that a
// crash loses none. Lines that are not read in time go to a buffer.
type asyncWriter struct {
	out     io.Writer
	dropped func(lines int) // logs how many lines were lost

	mu     sync.Mutex
	lines  [][]byte
	size   int
	lost   int
	behind bool          // a line took too long and is not written yet
	wakeup chan struct{} // holds one: there are lines, or the end
	idle   chan struct{} // closed when all is written; nil without a waiter
	ended  bool
}

func newAsyncWriter(out io.Writer, dropped func(lines int)) *asyncWriter {
	w := &asyncWriter{out: out, dropped: dropped, wakeup: make(chan struct{}, 1)}
	go w.run()
	return w
}

// Write implements [io.Writer]. It never fails: there is no place to report it.
func (w *asyncWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	if w.ended || w.size+len(line) > bufferSize {
		w.lost++
		w.mu.Unlock()
		return len(line), nil
	}
	w.lines, w.size = append(w.lines, append([]byte(nil), line...)), w.size+len(line)
	var written <-chan struct{}
	if !w.behind {
		written = w.waitLocked()
	}
	w.mu.Unlock()
	w.wake()
	if written != nil && !within(written, writePatience) {
		w.mu.Lock()
		w.behind = len(w.lines) > 0
		w.mu.Unlock()
	}
	return len(line), nil
}

// close waits until all is written, for at most outletEnd.
func (w *asyncWriter) close() {
	w.mu.Lock()
	written := w.waitLocked()
	w.ended = true
	w.mu.Unlock()
	w.wake()
	within(written, closePatience)
}

// waitLocked returns a channel that is closed when all is written.
func (w *asyncWriter) waitLocked() <-chan struct{} {
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	return w.idle
}

func (w *asyncWriter) wake() {
	select {
	case w.wakeup <- struct{}{}:
	default:
	}
}

// run writes line after line until the end.
func (w *asyncWriter) run() {
	for range w.wakeup {
		for {
			line, missing, more := w.next()
			if missing > 0 {
				w.dropped(missing)
			}
			if !more {
				break
			}
			_, _ = w.out.Write(line) // there is no place to report it
			w.wrote(line)
		}
		if w.finished() {
			return
		}
	}
}

// next returns the next line, or how many were dropped once all is written.
func (w *asyncWriter) next() (line []byte, missing int, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lines) > 0 {
		return w.lines[0], 0, true
	}
	missing, w.lost = w.lost, 0
	return nil, missing, false
}

func (w *asyncWriter) wrote(line []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines, w.size = w.lines[1:], w.size-len(line)
	w.signalIdle()
}

// signalIdle releases the waiters when all is written.
func (w *asyncWriter) signalIdle() {
	if len(w.lines) > 0 {
		return
	}
	w.behind = false
	if w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

func (w *asyncWriter) finished() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signalIdle()
	return w.ended && len(w.lines) == 0
}

// within waits for done, at most for limit, and reports whether it was closed.
func within(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
