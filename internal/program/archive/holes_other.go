//go:build !linux

package archive

import "os"

// dataOf returns the whole file.
func dataOf(_ *os.File, size int64) ([]span, error) { return []span{{0, size}}, nil }
