//go:build linux && !amd64

package snapshot

import "github.com/spotworker/spotworker/internal/program/snapshot/images"

// makeAgain is not called: no interrupted calls are found here.
func (*frozenThreads) makeAgain(int, images.Registers) error { return nil }
