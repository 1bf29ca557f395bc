// Package ordered holds values in order, such as the timers of many jobs. The first value
// is needed next, and any other value may be removed.
package ordered

import "container/heap"

// Item is the place of a value in a [Heap]. A value embeds it.
type Item struct {
	place int // 1 is the first; 0 is outside
}

func (i *Item) item() *Item { return i }

// InHeap reports whether the value is in a heap.
func (i *Item) InHeap() bool { return i.place > 0 }

// Value is a value of a heap: a pointer to a struct that embeds [Item].
type Value interface {
	item() *Item
}

// Heap is a binary heap. Each value is in one heap at most. It may be used by one
// goroutine at a time.
type Heap[V Value] struct{ values values[V] }

// NewHeap returns a heap whose first value is one before which no other one comes.
func NewHeap[V Value](before func(a, b V) bool) Heap[V] {
	return Heap[V]{values[V]{before: before}}
}

// Len returns how many values there are.
func (h *Heap[V]) Len() int { return len(h.values.list) }

// First returns the first value of a heap that is not empty.
func (h *Heap[V]) First() V { return h.values.list[0] }

// Add adds a value.
func (h *Heap[V]) Add(v V) { heap.Push(&h.values, v) }

// TakeFirst removes and returns the first value of a heap that is not empty.
func (h *Heap[V]) TakeFirst() V { return heap.Pop(&h.values).(V) }

// Remove removes a value that is in the heap.
func (h *Heap[V]) Remove(v V) { heap.Remove(&h.values, v.item().place-1) }

// values is a heap for package heap.
type values[V Value] struct {
	list   []V
	before func(a, b V) bool
}

func (s *values[V]) Len() int           { return len(s.list) }
func (s *values[V]) Less(i, j int) bool { return s.before(s.list[i], s.list[j]) }

func (s *values[V]) Swap(i, j int) {
	s.list[i], s.list[j] = s.list[j], s.list[i]
	s.list[i].item().place, s.list[j].item().place = i+1, j+1
}

func (s *values[V]) Push(x any) {
	s.list = append(s.list, x.(V))
	x.(V).item().place = len(s.list)
}

func (s *values[V]) Pop() any {
	var none V
	last := len(s.list) - 1
	v := s.list[last]
	v.item().place = 0
	s.list[last], s.list = none, s.list[:last]
	return v
}
