package overview

import (
	"fmt"
	"time"
)

const (
	// growthSpan is the time over which the growth of a queue is measured at least, and
	// growthKept for how long counts are kept.
	growthSpan = time.Minute
	growthKept = 5 * time.Minute

	// growthShare is the part of the messages that are more from which on a queue grows, and
	// growthLeast the number of them. Counts of queues are approximate.
	growthShare = 0.05
	growthLeast = 5
)

// Growth is how many more messages a queue has, and since when.
type Growth struct {
	More int
	Over time.Duration
}

// String returns the growth for people.
func (g Growth) String() string { return fmt.Sprintf("+%s in %s", number(g.More), Span(g.Over)) }

// queueCounts are the messages of the queues at one moment.
type queueCounts struct {
	at       time.Time
	messages map[string]int
}

// growths remembers the counts of earlier snapshots. The zero value remembers none.
type growths struct{ counts []queueCounts }

// add remembers a snapshot, and returns the growth of the queues that grow. Each is compared
// with the oldest count that is kept.
func (g *growths) add(s *Snapshot) map[string]Growth {
	if !s.Has(PartQueues) {
		return nil
	}
	now := queueCounts{at: s.At, messages: map[string]int{}}
	for _, q := range s.AllQueues() {
		now.messages[q.Name] = q.Messages
	}
	for len(g.counts) > 0 && s.At.Sub(g.counts[0].at) > growthKept {
		g.counts = g.counts[1:]
	}
	g.counts = append(g.counts, now)
	before := g.counts[0]
	over := s.At.Sub(before.at)
	if over < growthSpan {
		return nil
	}
	found := map[string]Growth{}
	for name, messages := range now.messages {
		had, known := before.messages[name]
		if more := messages - had; known && more >= growthLeast && float64(more) > growthShare*float64(had) {
			found[name] = Growth{More: more, Over: over}
		}
	}
	return found
}
