package delivery

import (
	"slices"
	"testing"
)

// TestOutcomeWords: every action that a delivery can end with has a word.
func TestOutcomeWords(t *testing.T) {
	for a := commit; int(a) < len(actionNames); a++ {
		if outcomeWords[a] == "" || !slices.Contains(Outcomes(), outcomeWords[a]) {
			t.Errorf("action %q has no word for observers", a)
		}
	}
}
