package worker

import "github.com/spotworker/spotworker/internal/testing/race"

// defaultHistories is how many random histories one run of the tests executes, and
// callStep the step from one crash point to the next. Under the race detector they are
// fewer. make test runs this package again, in full, without the race detector.
var defaultHistories, callStep = func() (int, int) {
	if race.Enabled {
		return 20, 7
	}
	return 200, 1
}()
