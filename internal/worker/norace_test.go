//go:build !race

package worker

// defaultHistories is how many random histories one run of the tests executes,
// and callStep the step from one crash point to the next.
const (
	defaultHistories = 200
	callStep         = 1
)
