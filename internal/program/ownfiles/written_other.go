//go:build !linux

package ownfiles

import "os"

// isWritten returns false: nothing tells.
func isWritten(*os.Root, string) bool { return false }
