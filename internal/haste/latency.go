package haste

import (
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
