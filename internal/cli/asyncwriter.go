package cli

import (
	"io"
	"runtime"
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

	// writeSize is the most that is written at once, in bytes.
	writeSize = 64 << 10

	// closePatience is how long a program waits at its end for its log to be read.
	closePatience = time.Second
)

// asyncWriter writes log lines without blocking for long: the program behind a pipe
// or a socket may hang, and a worker with running jobs must not hang with it. While
// the reader keeps up, a line is written when sync returns, so that a crash loses none
// that was logged. Lines of several goroutines are written in one piece. Lines that are
// not read in time go to a buffer.
type asyncWriter struct {
	out     io.Writer
	dropped func(lines int) // logs how many lines were lost
	wakeup  chan struct{}   // holds one: there are lines, or the end

	mu       sync.Mutex
	pending  []byte        // lines that are not being written yet
	size     int           // bytes that are not written, those being written included
	lost     int           // lines
	behind   bool          // writing takes too long: no caller waits
	waiting  chan struct{} // closed when the pending lines are written; nil without a waiter
	current  chan struct{} // closed when the lines that are being written now are; nil without a waiter
	writing  time.Time     // when that began; zero if nothing is being written
	patience *time.Timer   // calls giveUp
	idle     chan struct{} // closed at the end, when all is written; nil before
}

func newAsyncWriter(out io.Writer, dropped func(lines int)) *asyncWriter {
	w := &asyncWriter{out: out, dropped: dropped, wakeup: make(chan struct{}, 1)}
	w.patience = time.AfterFunc(writePatience, w.giveUp)
	go w.run()
	return w
}

// Write implements [io.Writer]. It only takes the line: see sync. It never fails: there
// is no place to report it.
func (w *asyncWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle != nil || w.size+len(line) > bufferSize {
		w.lost++
		return len(line), nil
	}
	w.pending, w.size = append(w.pending, line...), w.size+len(line)
	return len(line), nil
}

// sync waits until the lines that were taken are written, unless that takes too long.
func (w *asyncWriter) sync() {
	w.mu.Lock()
	var written <-chan struct{}
	switch {
	case w.behind:
	case len(w.pending) > 0:
		if w.waiting == nil {
			w.waiting = make(chan struct{})
		}
		written = w.waiting
	case !w.writing.IsZero():
		if w.current == nil {
			w.current = make(chan struct{})
		}
		written = w.current
	}
	w.mu.Unlock()
	w.wake()
	if written != nil {
		<-written
	}
}

// close waits until all is written, for at most closePatience.
func (w *asyncWriter) close() {
	w.mu.Lock()
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	idle := w.idle
	w.mu.Unlock()
	w.wake()
	timer := time.NewTimer(closePatience)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
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
	var lines []byte
	for range w.wakeup {
		runtime.Gosched() // goroutines that run anyway may add lines to the same write
		for {
			if lines = w.begin(lines[:0]); len(lines) == 0 {
				break
			}
			for rest := lines; len(rest) > 0; {
				n := min(len(rest), writeSize)
				_, _ = w.out.Write(rest[:n]) // there is no place to report it
				rest = rest[n:]
				w.wrote(n)
			}
			w.end()
		}
		if missing := w.takeLost(); missing > 0 {
			w.dropped(missing)
		}
		if w.finished() {
			return
		}
	}
}

// begin returns the pending lines, and keeps spare for the lines that come next.
func (w *asyncWriter) begin(spare []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 {
		return spare
	}
	lines := w.pending
	w.pending, w.current, w.waiting = spare, w.waiting, nil
	if cap(spare) > 2*writeSize {
		w.pending = nil // a reader had fallen behind
	}
	w.writing = time.Now()
	w.patience.Reset(writePatience)
	return lines
}

func (w *asyncWriter) wrote(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.size -= n
}

// end releases the callers that wait for the lines just written.
func (w *asyncWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patience.Stop()
	w.writing = time.Time{}
	release(&w.current)
	if len(w.pending) == 0 {
		w.behind = false
	}
}

// giveUp releases all that wait: writing takes too long.
func (w *asyncWriter) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writing.IsZero() || time.Since(w.writing) < writePatience {
		return // it has ended in the meantime
	}
	w.behind = true
	release(&w.current)
	release(&w.waiting)
}

func release(waiters *chan struct{}) {
	if *waiters != nil {
		close(*waiters)
		*waiters = nil
	}
}

// takeLost returns how many lines were dropped since the last call.
func (w *asyncWriter) takeLost() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	missing := w.lost
	w.lost = 0
	return missing
}

func (w *asyncWriter) finished() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle == nil || len(w.pending) > 0 {
		return false
	}
	close(w.idle)
	return true
}
