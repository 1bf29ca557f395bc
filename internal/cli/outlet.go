package cli

import (
	"io"
	"sync"
	"time"
)

const (
	// outletPatience is how long a line may take until its writer goes on without
	// waiting. Whoever reads the log takes microseconds.
	outletPatience = 50 * time.Millisecond

	// outletRoom is how much is kept for a reader that has fallen behind, in
	// bytes. What does not fit is dropped.
	outletRoom = 1 << 20

	// outletEnd is how long a program waits at its end for its log to be read.
	outletEnd = time.Second
)

// outlet is a log's way out that holds nobody up: behind a pipe or a socket there
// may be a program that hangs, and a worker with jobs in hand must not hang with
// it. As long as lines are read they are written in turn, each before its Write
// returns, so that a crash loses none.
type outlet struct {
	out     io.Writer
	dropped func(lines int) // says on out that so many are missing

	mu      sync.Mutex
	lines   [][]byte
	size    int
	missing int
	behind  bool          // a line has taken too long, and was not written yet
	news    chan struct{} // holds one: there are lines, or the end
	idle    chan struct{} // closed when all is written; nil if nobody waits
	ended   bool
}

func newOutlet(out io.Writer, dropped func(lines int)) *outlet {
	o := &outlet{out: out, dropped: dropped, news: make(chan struct{}, 1)}
	go o.run()
	return o
}

// Write implements [io.Writer]. It never fails: there is nobody to tell.
func (o *outlet) Write(line []byte) (int, error) {
	o.mu.Lock()
	if o.ended || o.size+len(line) > outletRoom {
		o.missing++
		o.mu.Unlock()
		return len(line), nil
	}
	o.lines, o.size = append(o.lines, append([]byte(nil), line...)), o.size+len(line)
	var written <-chan struct{}
	if !o.behind {
		written = o.waitLocked()
	}
	o.mu.Unlock()
	o.wake()
	if written != nil && !within(written, outletPatience) {
		o.mu.Lock()
		o.behind = len(o.lines) > 0
		o.mu.Unlock()
	}
	return len(line), nil
}

// close waits until all is written, for at most outletEnd.
func (o *outlet) close() {
	o.mu.Lock()
	written := o.waitLocked()
	o.ended = true
	o.mu.Unlock()
	o.wake()
	within(written, outletEnd)
}

// waitLocked returns a channel that is closed when all is written.
func (o *outlet) waitLocked() <-chan struct{} {
	if o.idle == nil {
		o.idle = make(chan struct{})
	}
	return o.idle
}

func (o *outlet) wake() {
	select {
	case o.news <- struct{}{}:
	default:
	}
}

// run writes line after line until the end.
func (o *outlet) run() {
	for range o.news {
		for {
			line, missing, more := o.next()
			if missing > 0 {
				o.dropped(missing)
			}
			if !more {
				break
			}
			_, _ = o.out.Write(line) // there is nobody to tell
			o.wrote(line)
		}
		if o.over() {
			return
		}
	}
}

// next returns the line that comes next, and how many were dropped, once there is
// room again.
func (o *outlet) next() (line []byte, missing int, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.lines) > 0 {
		return o.lines[0], 0, true
	}
	missing, o.missing = o.missing, 0
	return nil, missing, false
}

func (o *outlet) wrote(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines, o.size = o.lines[1:], o.size-len(line)
	o.settle()
}

// settle lets those go on who wait for all to be written.
func (o *outlet) settle() {
	if len(o.lines) > 0 {
		return
	}
	o.behind = false
	if o.idle != nil {
		close(o.idle)
		o.idle = nil
	}
}

func (o *outlet) over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settle()
	return o.ended && len(o.lines) == 0
}

// within waits for done, for at most that long, and reports whether it came.
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
