package proof

import (
	"slices"
	"testing"
)

// TestQuickAndFull: only SPOTWORKER_PROOF=full runs everything; a sample is part of it, and
// has the same order.
func TestQuickAndFull(t *testing.T) {
	rows := []int{1, 2, 3, 4, 5, 6}
	for value, full := range map[string]bool{"": false, "quick": false, "full": true} {
		t.Setenv(Variable, value)
		if got, want := Times(2, 6), map[bool]int{false: 2, true: 6}[full]; got != want || Full() != full {
			t.Errorf("%s=%q: Times(2, 6) = %d, want %d", Variable, value, got, want)
		}
		got := Some(t, 2, rows)
		if len(got) != Times(2, 6) || !slices.IsSorted(got) || full && !slices.Equal(got, rows) {
			t.Errorf("%s=%q: Some = %v, want %d of %v", Variable, value, got, Times(2, 6), rows)
		}
		if again := Some(t, 2, rows); !slices.Equal(got, again) {
			t.Errorf("%s=%q: Some = %v and then %v, want the same sample", Variable, value, got, again)
		}
	}
}
