//go:build linux && !amd64

package snapshot

// makeAgain is not called: no interrupted calls are found here.
func (*frozenThreads) makeAgain(int, registers) error { return nil }
