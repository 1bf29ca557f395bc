// Package property checks properties with random values.
package property

import (
	"flag"
	"testing"

	"pgregory.net/rapid"

	"github.com/spotworker/spotworker/internal/test/proof"
)

// Check checks a property with random values: in a quick run the same ones each time.
func Check(t *testing.T, property func(t *rapid.T)) {
	t.Helper()
	if !proof.Full() {
		if err := flag.Set("rapid.seed", "1"); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, property)
}
