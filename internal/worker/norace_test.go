//go:build !race

package worker

// defaultHistories is how many random histories a run of the tests goes through,
// and callStep the step from one crash point to the next.
const (
	defaultHistories = 200
	callStep         = 1
)
