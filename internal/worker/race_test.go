//go:build race

package worker

// Under the race detector, which makes everything about five times slower, the
// tests with the most cases run only some of them. make test runs these tests
// again in full without the race detector.
const (
	defaultHistories = 20
	callStep         = 7
)
