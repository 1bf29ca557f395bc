package haste

import (
	"context"
	"sync"
	"time"
)

const (
	// weight of one answer in the moving average, as its denominator.
	weight = 8

	// outlier is how many times the average one answer counts at most, so that a
	// single slow one does not make a drain wait for dead connections.
	outlier = 4
)

// Latency is a moving average of how long answers to small calls take. The zero
// value knows of none. It may be used from several goroutines.
type Latency struct {
	mu   sync.Mutex
	mean time.Duration
}

// Mean returns the average, 0 before the first answer.
func (l *Latency) Mean() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mean
}

func (l *Latency) add(took time.Duration) {
	took = max(took, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mean == 0 {
		l.mean = took
		return
	}
	l.mean += (min(took, max(outlier*l.mean, floor)) - l.mean) / weight
}

const (
	// floor is the least time that a try gets. It is far above what storage
	// takes, and low enough for a dead connection to cost less than a second.
	floor = 500 * time.Millisecond

	// factor is how many times the usual time of an answer the first try gets,
	// and later how many times that a retry gets.
	factor = 4
	later  = 8
)

// Tries bounds the tries of one caller's calls. It may be used from several
// goroutines.
type Tries struct {
	latency *Latency
	short   context.Context //nolint:containedctx // only its end counts

	mu         sync.Mutex
	slowest    time.Duration // answer so far, of those since time is short
	unanswered bool          // the last try was cut off
}

// NewTries returns what bounds the tries of a caller whose time is short once
// short has ended. All answers, also those before, go into latency.
func (l *Latency) NewTries(short context.Context) *Tries { return &Tries{latency: l, short: short} }

type key struct{}

// In returns a context whose calls t bounds.
func (t *Tries) In(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, t) }

// triesOf returns what bounds the calls of ctx, or nil.
func triesOf(ctx context.Context) *Tries {
	t, _ := ctx.Value(key{}).(*Tries)
	return t
}

// limit returns how long a try that begins now waits at most.
func (t *Tries) limit() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return limitFor(t.latency.Mean(), t.slowest, t.unanswered)
}

// limitFor returns how long a try waits, given how long answers usually take, the
// slowest answer in this drain, and whether the try before was cut off.
func limitFor(usual, slowest time.Duration, unanswered bool) time.Duration {
	limit := max(floor, factor*usual, 2*slowest)
	if unanswered {
		limit *= later
	}
	return limit
}

// answered records that a try got its answer.
func (t *Tries) answered(took time.Duration) {
	t.latency.add(took)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unanswered = false
	if t.short.Err() != nil {
		t.slowest = max(t.slowest, took)
	}
}

// cutOff records that a try was cut off.
func (t *Tries) cutOff() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unanswered = true
}
