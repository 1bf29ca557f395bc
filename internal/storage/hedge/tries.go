package hedge

import (
	"context"
	"sync"
	"time"
)

const (
	// weight is the denominator of one response's weight in the moving average.
	weight = 8

	// leastWeight is the weight of a response that took longer than the shortest ones.
	leastWeight = 256

	// outlier limits how much one response counts, as a multiple of the average, so
	// that a single slow one does not make a drain wait for dead connections.
	outlier = 4
)

// Latency is a moving average of the response times of small calls. The zero value
// is ready to use. It may be used from several goroutines.
type Latency struct {
	mu    sync.Mutex
	mean  time.Duration
	least time.Duration
	watch *watch // of the tries that were made last
}

// Mean returns the average, 0 before the first response.
func (l *Latency) Mean() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mean
}

// Least returns about the shortest of the recent response times, 0 before the first
// response: what network and service take, without the time that responses wait for
// this machine's processors.
func (l *Latency) Least() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.least
}

func (l *Latency) add(took time.Duration) {
	took = max(took, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.least == 0 || took < l.least {
		l.least = took
	} else {
		l.least += (took - l.least) / leastWeight
	}
	if l.mean == 0 {
		l.mean = took
		return
	}
	l.mean += (min(took, max(outlier*l.mean, floor)) - l.mean) / weight
}

const (
	// floor is the smallest limit of a try. It is far above the usual response time of
	// storage, and low enough for a dead connection to cost less than a second.
	floor = 500 * time.Millisecond

	// factor × the usual response time is the limit of the first try, and later ×
	// that limit is the limit of a retry.
	factor = 4
	later  = 8
)

// Tries limits the tries of one caller's calls. It may be used from several
// goroutines.
type Tries struct {
	latency *Latency
	watch   *watch

	mu         sync.Mutex
	slowest    time.Duration // response since time is short
	unanswered bool          // whether the last try was cut off
}

// NewTries returns the limits of a caller whose time is short once the context short
// has ended. All responses, also those before, count towards l.
func (l *Latency) NewTries(short context.Context) *Tries {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watch == nil || l.watch.short != short {
		l.watch = newWatch(short)
	}
	return &Tries{latency: l, watch: l.watch}
}

type key struct{}

// In returns a context whose calls t limits.
func (t *Tries) In(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, t) }

// triesOf returns the limits of calls under ctx, or nil.
func triesOf(ctx context.Context) *Tries {
	t, _ := ctx.Value(key{}).(*Tries)
	return t
}

// limit returns the limit of a try that begins now.
func (t *Tries) limit() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return limitFor(t.latency.Mean(), t.slowest, t.unanswered)
}

// limitFor returns the limit of a try, given the usual response time, the slowest
// response in this drain, and whether the previous try was cut off.
func limitFor(usual, slowest time.Duration, unanswered bool) time.Duration {
	limit := max(floor, factor*usual, 2*slowest)
	if unanswered {
		limit *= later
	}
	return limit
}

// answered records that a try got a response.
func (t *Tries) answered(took time.Duration) {
	t.latency.add(took)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unanswered = false
	if t.watch.short.Err() != nil {
		t.slowest = max(t.slowest, took)
	}
}

// cutOff records that a try was cut off.
func (t *Tries) cutOff() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unanswered = true
}
