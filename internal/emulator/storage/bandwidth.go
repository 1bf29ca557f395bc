package storage

import (
	"context"
	"math"
	"sync"
	"time"
)

// Bandwidth limits how fast bodies flow, in bytes per second. Zero is no
// limit. Headers count for nothing: the limit is there to make large bodies
// slow, not small calls.
type Bandwidth struct {
	// Up limits the bodies of requests, Down those of replies.
	Up, Down int64
}

const (
	// pieceTime is about how long a piece of a body takes on its way. Shorter
	// pieces share a link more evenly and cost more timers.
	pieceTime = 20 * time.Millisecond
	// maxPiece bounds a piece where a link is fast.
	maxPiece = 64 << 10
	// maxNap is how long a change of bandwidth may go unnoticed by a body that
	// is under way.
	maxNap = 100 * time.Millisecond
	// maxLag is how much of a delay that the link did not cause a body makes up
	// for: timers fire late, but a reader that slept has not saved anything.
	maxLag = 50 * time.Millisecond
)

// SetBandwidth replaces the account's bandwidth, which all its calls share. It
// may be called at any time; bodies under way feel it within 100 ms.
func (s *Server) SetBandwidth(b Bandwidth) {
	s.up.setRate(b.Up)
	s.down.setRate(b.Down)
}

// pipe is one direction of a link. The bodies in it take turns, a piece each,
// in the order in which they ask. The zero value has no limit.
type pipe struct {
	mu      sync.Mutex
	rate    int64     // bytes per second; 0: no limit
	changes uint64    // of the rate
	free    time.Time // when every piece that was let in has passed
}

func (p *pipe) setRate(rate int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = max(rate, 0)
	p.changes++
	p.free = time.Time{}
}

// flow begins the way of one body through the pipe, which no other link on
// its way lets by faster than limit; 0 is no such link.
func (p *pipe) flow(limit int64) *flow { return &flow{pipe: p, limit: max(limit, 0)} }

// enter lets in a piece of at most n bytes of a body whose piece before had
// passed at from, and returns its size and when it will have passed. It is
// void if the rate has changed by then. A piece that is given up keeps its
// place.
func (p *pipe) enter(from time.Time, n int, limit int64) (size int, due time.Time, changes uint64) {
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

func (p *pipe) changed(since uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changes != since
}

// flow is one body on its way through a pipe and, it may be, a slower link of
// its own call.
type flow struct {
	pipe  *pipe
	limit int64     // bytes per second; 0: none but the pipe's
	last  time.Time // when the piece before had passed; zero: there was none
}

// limited reports whether anything slows the body down at present.
func (f *flow) limited() bool {
	f.pipe.mu.Lock()
	defer f.pipe.mu.Unlock()
	return f.limit > 0 || f.pipe.rate > 0
}

// pass waits until a piece of at most n bytes has passed and returns its size.
// It reports false, at once, when ctx ends.
func (f *flow) pass(ctx context.Context, n int) (int, bool) {
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

// from is when the next piece may set out: when the one before had passed, or
// now for the first.
func (f *flow) from(now time.Time) time.Time {
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
func (f *flow) await(ctx context.Context, due time.Time, changes uint64) (valid, ok bool) {
	for {
		left := time.Until(due)
		if !wait(ctx, min(left, maxNap)) {
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

// pieceSize is how many bytes pass in pieceTime, at least 1.
func pieceSize(rate int64) int {
	if rate <= 0 {
		return math.MaxInt
	}
	return int(min(max(rate/int64(time.Second/pieceTime), 1), maxPiece))
}

// transit is how long size bytes take.
func transit(size int, rate int64) time.Duration {
	if rate <= 0 {
		return 0
	}
	return time.Duration(size) * time.Second / time.Duration(rate)
}
