package storage

import (
	"cmp"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
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
	// Azure does not state the weight of a call for 32 messages; here it counts the
	// messages that it hands out, and 1 if it finds none.
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
func (l *limiter) admit(r *protocol.Request) *protocol.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on {
		return nil
	}
	queue := l.queue(r)
	switch {
	case l.account.over(r.Now):
		l.refused++
		return protocol.ServerBusy(0).Because("%d requests a second for an account", l.account.limit)
	case queue != nil && queue.over(r.Now):
		l.refused++
		return protocol.ServerBusy(0).Because("%d messages a second for a queue", queue.limit)
	}
	l.account.used++
	if queue != nil {
		queue.used++
	}
	return nil
}

// charge counts the messages of a reply beyond the first, which admit counted.
func (l *limiter) charge(r *protocol.Request, rep *protocol.Reply) {
	if len(rep.MessageIDs) < 2 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if queue := l.queue(r); l.on && queue != nil {
		queue.used += len(rep.MessageIDs) - 1
	}
}

// queue returns the meter of the queue whose messages a request is about, nil
// for any other request.
func (l *limiter) queue(r *protocol.Request) *meter {
	if r.Service != protocol.QueueService || r.Rest == "" {
		return nil
	}
	m := l.queues[r.Resource]
	if m == nil && l.on {
		m = &meter{limit: l.perQueue}
		l.queues[r.Resource] = m
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
	// Up limits the bodies of requests, Down the bodies of replies.
	Up, Down int64
}

// SetBandwidth replaces the account's bandwidth, which all its calls share. It
// may be called at any time; bodies in transfer adapt within 100 ms.
func (s *Server) SetBandwidth(b Bandwidth) {
	s.up.SetRate(b.Up)
	s.down.SetRate(b.Down)
}
