// Package race tells tests whether they run under the race detector, which makes them
// five to ten times slower.
package race

import "testing"

// Skip skips a test of hours of virtual time, or of a gigabyte, under the race detector.
// Shorter tests execute the same code there; make test runs its package again, in full,
// without the race detector.
func Skip(t *testing.T) {
	t.Helper()
	if Enabled {
		t.Skip("too long for the race detector: make test runs this without it")
	}
}
