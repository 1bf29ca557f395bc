package storage

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

// Len, Less, Swap, Push and Pop are for container/heap only.

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

func (h *messageHeap) push(m *message)   { heap.Push(h, m) }
func (h *messageHeap) remove(m *message) { heap.Remove(h, m.slots[h.slot]) }

// first returns the least message, or nil.
func (h *messageHeap) first() *message {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}
