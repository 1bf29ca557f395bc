package queues

import (
	"maps"
	"slices"
	"time"
)

// Message is the state of a message.
type Message struct {
	ID           string
	Text         string
	Inserted     time.Time
	Expires      time.Time // zero: never
	NextVisible  time.Time
	Visible      bool // now
	DequeueCount int64
	PopReceipt   string // the current one
}

// Queues returns the names of all queues, in order.
func (s *Service) Queues() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(s.names.From(""))
}

// Age makes the messages of a queue look as if they had been put that much earlier.
func (s *Service) Age(name string, by time.Duration) {
	q := s.named(name)
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.messages {
		m.inserted = m.inserted.Add(-by)
	}
}

// Messages returns all messages of a queue, in the order in which they become visible; none
// where there is no such queue.
func (s *Service) Messages(name string) []Message {
	q := s.named(name)
	if q == nil {
		return nil
	}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle(now)
	all := slices.SortedFunc(maps.Values(q.messages), func(a, b *message) int {
		if soonerVisible(a, b) {
			return -1
		}
		return 1
	})
	out := make([]Message, len(all))
	for i, m := range all {
		out[i] = Message{
			ID: m.id, Text: m.text, Inserted: m.inserted, Expires: m.expires, NextVisible: m.visible,
			Visible: !m.visible.After(now), DequeueCount: m.dequeues, PopReceipt: m.receipt(),
		}
	}
	return out
}

func (s *Service) named(name string) *queue {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.queues[name]
}
