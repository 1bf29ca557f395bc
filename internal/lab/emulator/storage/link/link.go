// Package link is a network link of limited bandwidth: a pipe for each direction, in
// which the bodies of all calls take turns. It knows the clock and nothing of storage.
package link

import (
	"context"
	"math"
	"sync"
	"time"
)

const (
	// pieceTime is about how long the transfer of a piece of a body takes. Shorter
	// pieces share a link more evenly and cost more timers.
	pieceTime = 20 * time.Millisecond
	// maxPiece bounds a piece where a link is fast.
	maxPiece = 64 << 10
	// maxNap is how long a body in transfer may take to notice a change of bandwidth.
	maxNap = 100 * time.Millisecond
	// maxLag is how much of a delay that the link did not cause is made up for:
	// timers fire late, but a reader that pauses does not save bandwidth.
	maxLag = 50 * time.Millisecond
)

// Pipe is one direction of a link. The bodies in it take turns, a piece each,
// in the order in which they ask. The zero value has no limit.
type Pipe struct {
	mu      sync.Mutex
	rate    int64     // bytes per second; 0: no limit
	changes uint64    // of the rate
	free    time.Time // when every piece that was let in has passed
}

// SetRate replaces the rate, in bytes per second; 0 is no limit.
func (p *Pipe) SetRate(rate int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = max(rate, 0)
	p.changes++
	p.free = time.Time{}
}

// Flow begins the transfer of one body, at most at limit besides the pipe's rate; 0
// is no such limit.
func (p *Pipe) Flow(limit int64) *Flow { return &Flow{pipe: p, limit: max(limit, 0)} }

// enter reserves the pipe for a piece of at most n bytes whose predecessor had
// passed at from, and returns its size and when it will have passed. That is void
// if the rate changes before. An abandoned piece keeps its reservation.
func (p *Pipe) enter(from time.Time, n int, limit int64) (size int, due time.Time, changes uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	size = min(n, pieceSize(p.rate), pieceSize(limit))
	due = from.Add(transit(size, limit))
	if p.rate > 0 {
		if p.free.Before(from) {
			p.free = from
		}
		p.free = p.free.Add(transit(size, p.rate))
		if p.free.After(due) {
			due = p.free
		}
	}
	return size, due, p.changes
}

func (p *Pipe) changed(since uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changes != since
}

// Flow is the transfer of one body through a pipe and, optionally, a slower link of
// its own call.
type Flow struct {
	pipe  *Pipe
	limit int64     // bytes per second; 0: none but the pipe's
	last  time.Time // when the piece before had passed; zero: there was none
}

// Limited reports whether a rate applies to the body now.
func (f *Flow) Limited() bool {
	f.pipe.mu.Lock()
	defer f.pipe.mu.Unlock()
	return f.limit > 0 || f.pipe.rate > 0
}

// Pass waits until a piece of at most n bytes has passed and returns its size.
// It reports false, at once, when ctx ends.
func (f *Flow) Pass(ctx context.Context, n int) (int, bool) {
	for {
		size, due, changes := f.pipe.enter(f.from(time.Now()), n, f.limit)
		valid, ok := f.await(ctx, due, changes)
		if !ok {
			return 0, false
		}
		if valid {
			f.last = due
			return size, true
		}
	}
}

// from returns when the next piece may start: when the one before had passed, or now
// for the first.
func (f *Flow) from(now time.Time) time.Time {
	earliest := now.Add(-maxLag)
	switch {
	case f.last.IsZero():
		return now
	case f.last.Before(earliest):
		return earliest
	}
	return f.last
}

// await waits until due. It reports valid as false as soon as it sees the
// pipe's rate changed, and ok as false as soon as ctx ends.
func (f *Flow) await(ctx context.Context, due time.Time, changes uint64) (valid, ok bool) {
	for {
		left := time.Until(due)
		if !Wait(ctx, min(left, maxNap)) {
			return false, false
		}
		if left <= maxNap {
			return true, true
		}
		if f.pipe.changed(changes) {
			return false, true
		}
	}
}

// pieceSize returns how many bytes pass in pieceTime, at least 1.
func pieceSize(rate int64) int {
	if rate <= 0 {
		return math.MaxInt
	}
	return int(min(max(rate/int64(time.Second/pieceTime), 1), maxPiece))
}

// transit returns how long size bytes take.
func transit(size int, rate int64) time.Duration {
	if rate <= 0 {
		return 0
	}
	return time.Duration(size) * time.Second / time.Duration(rate)
}

// Wait sleeps for d. It returns false as soon as ctx ends, also if it had
// ended before.
func Wait(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
