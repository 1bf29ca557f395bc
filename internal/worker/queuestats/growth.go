package queuestats

import (
	"sync"

	"github.com/spotworker/spotworker/internal/queue"
)

// A queue grows if each of two readings in a row, of the readings in this worker's log, is by
// growthShare above the one before, and the last by more than growthLeast messages. The
// readings are at least [LogEvery] apart. The alert over the metrics has the same numbers.
const (
	growthShare = 1.05
	growthLeast = 20
)

// trends are the trends of queues.
type trends struct {
	mu     sync.Mutex
	queues map[*queue.Queue]trend
}

// trend is the course of a queue by its readings.
type trend struct {
	messages int // at the last reading
	rises    int // how many readings in a row were above the one before
	grew     bool
}

// grows adds a reading, and reports whether the queue grows since this reading: once, until a
// reading shows that it does not.
func (t *trends) grows(q *queue.Queue, messages int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queues == nil {
		t.queues = map[*queue.Queue]trend{}
	}
	before, known := t.queues[q]
	now := trend{messages: messages}
	if known && float64(messages) > growthShare*float64(before.messages) {
		now.rises = before.rises + 1
	}
	now.grew = now.rises > 0 && (before.grew || now.rises > 1 && messages-before.messages > growthLeast)
	t.queues[q] = now
	return now.grew && !before.grew
}
