//go:build race

package worker

// Under the race detector, which makes everything about five times slower, the
// tests with the most cases take a part of them. make test runs those again
// without it, in full.
const (
	defaultHistories = 50
	callStep         = 3
)
