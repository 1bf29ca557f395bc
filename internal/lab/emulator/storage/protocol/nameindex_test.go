package protocol

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/property"
)

func TestNameIndexBehavesLikeASortedSlice(t *testing.T) {
	// Few letters, so that removing and adding again meet often.
	name := rapid.StringMatching(`[ab/]{1,6}`)
	property.Check(t, func(t *rapid.T) {
		var index NameIndex
		var model []string
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				n := name.Draw(t, "name")
				index.Add(n)
				if i, found := slices.BinarySearch(model, n); !found {
					model = slices.Insert(model, i, n)
				}
			},
			"remove": func(t *rapid.T) {
				n := name.Draw(t, "name")
				index.Remove(n)
				if i, found := slices.BinarySearch(model, n); found {
					model = slices.Delete(model, i, i+1)
				}
			},
			"": func(t *rapid.T) {
				start := name.Draw(t, "start")
				i, _ := slices.BinarySearch(model, start)
				if got, want := slices.Collect(index.From(start)), model[i:]; !slices.Equal(got, want) {
					t.Fatalf("from(%q) = %q, want %q", start, got, want)
				}
			},
		})
	})
}

// Chunks split and empty only at sizes that the property test does not reach.
func TestNameIndexOfManyChunks(t *testing.T) {
	const n = 10 * chunkSize
	var index NameIndex
	name := func(i int) string { return fmt.Sprintf("%06d", i) }
	for i := range n {
		index.Add(name(i * 7919 % n)) // a prime: every name once, in no order
	}
	if got := slices.Collect(index.From("")); len(got) != n || !slices.IsSorted(got) {
		t.Fatalf("the index has %d names, sorted %t, want %d, sorted", len(got), slices.IsSorted(got), n)
	}
	for _, chunk := range index.chunks {
		if len(chunk) == 0 || len(chunk) > chunkSize {
			t.Fatalf("a chunk has %d names, want 1 to %d", len(chunk), chunkSize)
		}
	}
	for i := range n {
		if i%100 != 0 {
			index.Remove(name(i))
		}
	}
	got := slices.Collect(index.From(name(150)))
	if want := name(200); len(got) != n/100-1 || got[0] != want {
		t.Errorf("from(%s) = %d names from %q, want %d from %q", name(150), len(got), got[0], n/100-1, want)
	}
}
