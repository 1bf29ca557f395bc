package storage

import (
	"cmp"
	"context"
	"math"
	"sync"
	"time"
)

// Limits are the rates at which the service begins to refuse calls with 503
// ServerBusy. The zero value has the targets that Azure states ("Scalability
// and performance targets for Queue Storage" and "for standard storage
// accounts"); a negative field is no limit.
//
// A refused call does not count. Azure sends no Retry-After here, and neither does
// this: the client decides how long to wait.
type Limits struct {
	// QueueMessages is how many messages a second one queue puts, hands out,
	// shows, updates and deletes. Default: 2,000.
	//
	// Azure does not state what a call for 32 messages counts; here it counts
	// what it hands out, and one that finds none counts 1.
	QueueMessages int
	// AccountRequests is how many requests a second the account takes.
	// Default: 20,000.
	AccountRequests int
}

// Azure's targets.
const (
	queueMessages   = 2_000
	accountRequests = 20_000
)

// SetLimits replaces the limits; nil lifts them. It may be called at any time,
// and counting starts again.
func (s *Server) SetLimits(l *Limits) { s.limits.set(l) }

// Throttled returns how many calls were refused over a limit since the start
// or the last ResetCounts.
func (s *Server) Throttled() int64 {
	s.limits.mu.Lock()
	defer s.limits.mu.Unlock()
	return s.limits.refused
}

// limiter enforces an account's limits. The zero value has none.
type limiter struct {
	mu       sync.Mutex
	on       bool
	perQueue int
	account  meter
	queues   map[string]*meter
	refused  int64
}

func (l *limiter) set(limits *Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = limits != nil
	if !l.on {
		return
	}
	l.perQueue = cmp.Or(limits.QueueMessages, queueMessages)
	l.account = meter{limit: cmp.Or(limits.AccountRequests, accountRequests)}
	l.queues = make(map[string]*meter)
}

func (l *limiter) resetCount() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = 0
}

// admit counts a call, or refuses it if the account or its queue is over the
// limit.
func (l *limiter) admit(r *request) *Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on {
		return nil
	}
	queue := l.queue(r)
	switch {
	case l.account.over(r.now):
		l.refused++
		return ServerBusy(0).because("%d requests a second for an account", l.account.limit)
	case queue != nil && queue.over(r.now):
		l.refused++
		return ServerBusy(0).because("%d messages a second for a queue", queue.limit)
	}
	l.account.used++
	if queue != nil {
		queue.used++
	}
	return nil
}

// charge counts the messages of a reply beyond the first, which admit counted.
func (l *limiter) charge(r *request, rep *reply) {
	if len(rep.messageIDs) < 2 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if queue := l.queue(r); l.on && queue != nil {
		queue.used += len(rep.messageIDs) - 1
	}
}

// queue returns the meter of the queue whose messages a request is about, nil
// for any other request.
func (l *limiter) queue(r *request) *meter {
	if r.service != QueueService || r.rest == "" {
		return nil
	}
	m := l.queues[r.resource]
	if m == nil && l.on {
		m = &meter{limit: l.perQueue}
		l.queues[r.resource] = m
	}
	return m
}

// meter counts by the second. What exceeds one second is carried over to the next.
type meter struct {
	limit int // negative: none
	began time.Time
	used  int
}

// over reports whether the current second is full.
func (m *meter) over(now time.Time) bool {
	if m.limit < 0 {
		return false
	}
	for ; m.used > 0 && now.Sub(m.began) >= time.Second; m.began = m.began.Add(time.Second) {
		m.used = max(0, m.used-m.limit)
	}
	if m.used == 0 {
		m.began = now
	}
	return m.used >= m.limit
}

// Bandwidth limits how fast bodies flow, in bytes per second. Zero is no
// limit. Headers do not count: the limit slows down large bodies, not small calls.
type Bandwidth struct {
	// Up limits the bodies of requests, Down those of replies.
	Up, Down int64
}

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

// SetBandwidth replaces the account's bandwidth, which all its calls share. It
// may be called at any time; bodies in transfer adapt within 100 ms.
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

// flow begins the transfer of one body, at most at limit besides the pipe's rate; 0
// is no such limit.
func (p *pipe) flow(limit int64) *flow { return &flow{pipe: p, limit: max(limit, 0)} }

// enter reserves the pipe for a piece of at most n bytes whose predecessor had
// passed at from, and returns its size and when it will have passed. That is void
// if the rate changes before. An abandoned piece keeps its reservation.
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

// flow is the transfer of one body through a pipe and, optionally, a slower link of
// its own call.
type flow struct {
	pipe  *pipe
	limit int64     // bytes per second; 0: none but the pipe's
	last  time.Time // when the piece before had passed; zero: there was none
}

// limited reports whether a rate applies to the body now.
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

// from returns when the next piece may start: when the one before had passed, or now
// for the first.
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
