//go:build race

package worker

import "testing"

// Under the race detector, which makes everything five to ten times slower, the
// tests with the most cases run only some of them. make test runs this package
// again, in full, without the race detector.
const (
	defaultHistories = 20
	callStep         = 7
)

// skipUnderRace skips a test of hours of virtual time. What it executes, shorter
// tests execute under the race detector too.
func skipUnderRace(t *testing.T) {
	t.Helper()
	t.Skip("hours of virtual time: make test runs this without the race detector")
}
