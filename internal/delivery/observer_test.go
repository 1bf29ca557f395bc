package delivery

import (
	"slices"
	"testing"

	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// TestOutcomeWords: every action that a delivery can end with has a word.
func TestOutcomeWords(t *testing.T) {
	for a := commit; int(a) < len(actionNames); a++ {
		if outcomeWords[a] == "" || !slices.Contains(observe.Outcomes, outcomeWords[a]) {
			t.Errorf("action %q has no word for observers", a)
		}
	}
}
