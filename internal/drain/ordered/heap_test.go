package ordered

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/property"
)

type number struct {
	Item
	n int
}

// TestHeap: a heap gives its values in order after any additions and removals,
// and each value knows whether it is in the heap.
func TestHeap(t *testing.T) {
	property.Check(t, func(t *rapid.T) {
		h := NewHeap(func(a, b *number) bool { return a.n < b.n })
		var in []*number // in order
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if h.Len() != len(in) {
					t.Fatalf("Len = %d, want %d", h.Len(), len(in))
				}
				if len(in) > 0 && h.First().n != in[0].n {
					t.Fatalf("First = %d, want %d", h.First().n, in[0].n)
				}
			},
			"add": func(t *rapid.T) {
				v := &number{n: rapid.IntRange(0, 20).Draw(t, "n")}
				h.Add(v)
				at, _ := slices.BinarySearchFunc(in, v, func(a, b *number) int { return a.n - b.n })
				in = slices.Insert(in, at, v)
				if !v.InHeap() {
					t.Fatal("a value that was added is not in the heap")
				}
			},
			"take": func(t *rapid.T) {
				if len(in) == 0 {
					t.Skip("the heap is empty")
				}
				v := h.TakeFirst()
				if v.n != in[0].n || v.InHeap() {
					t.Fatalf("TakeFirst = %d, in the heap: %v, want %d, false", v.n, v.InHeap(), in[0].n)
				}
				in = slices.DeleteFunc(in, func(other *number) bool { return other == v })
			},
			"remove": func(t *rapid.T) {
				if len(in) == 0 {
					t.Skip("the heap is empty")
				}
				v := rapid.SampledFrom(in).Draw(t, "value")
				h.Remove(v)
				if v.InHeap() {
					t.Fatal("a value that was removed is in the heap")
				}
				in = slices.DeleteFunc(in, func(other *number) bool { return other == v })
			},
		})
	})
}
