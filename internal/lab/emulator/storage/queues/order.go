package queues

import "container/heap"

// messageHeap is a heap of messages that know their position in it, so that
// any of them can be removed in O(log n).
type messageHeap struct {
	items  []*message
	slot   int // which of a message's slots holds its position here
	before func(a, b *message) bool
}

// nowhere is the position of a message that is not in the heap.
const nowhere = -1

// Len implements heap.Interface.
func (h *messageHeap) Len() int { return len(h.items) }

// Less implements heap.Interface.
func (h *messageHeap) Less(i, j int) bool { return h.before(h.items[i], h.items[j]) }

// Swap implements heap.Interface.
func (h *messageHeap) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].slots[h.slot] = i
	h.items[j].slots[h.slot] = j
}

// Push implements heap.Interface.
func (h *messageHeap) Push(x any) {
	m, ok := x.(*message)
	if !ok {
		panic("storage: a heap of messages is given something else")
	}
	m.slots[h.slot] = len(h.items)
	h.items = append(h.items, m)
}

// Pop implements heap.Interface.
func (h *messageHeap) Pop() any {
	last := len(h.items) - 1
	m := h.items[last]
	m.slots[h.slot] = nowhere
	h.items[last] = nil
	h.items = h.items[:last]
	return m
}

func (h *messageHeap) push(m *message) { heap.Push(h, m) }

func (h *messageHeap) remove(m *message) { heap.Remove(h, m.slots[h.slot]) }

// first returns the least message, or nil.
func (h *messageHeap) first() *message {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

// messageList is a doubly linked list of messages, so that any of them can be
// taken out at constant cost. The zero value is empty.
type messageList struct {
	first, last *message
}

// links tie a message to its neighbours in a messageList.
type links struct {
	previous, next *message
}

// add appends a message that is in no list.
func (l *messageList) add(m *message) {
	m.links = links{previous: l.last}
	if l.last == nil {
		l.first = m
	} else {
		l.last.links.next = m
	}
	l.last = m
}

// remove takes out a message that is in the list.
func (l *messageList) remove(m *message) {
	if m.links.previous == nil {
		l.first = m.links.next
	} else {
		m.links.previous.links.next = m.links.next
	}
	if m.links.next == nil {
		l.last = m.links.previous
	} else {
		m.links.next.links.previous = m.links.previous
	}
	m.links = links{}
}
