//go:build !race

package worker

import "testing"

// defaultHistories is how many random histories one run of the tests executes,
// and callStep the step from one crash point to the next.
const (
	defaultHistories = 200
	callStep         = 1
)

// skipUnderRace does nothing here: see the race detector's.
func skipUnderRace(*testing.T) {}
