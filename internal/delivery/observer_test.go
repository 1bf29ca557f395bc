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

// TestFailedHere: a failure says something about this machine only if the handler ran here.
func TestFailedHere(t *testing.T) {
	for _, class := range FailureClasses() {
		if got, want := FailedHere(class), class != "exits" && class != "message"; got != want {
			t.Errorf("FailedHere(%q) = %t, want %t", class, got, want)
		}
	}
}
