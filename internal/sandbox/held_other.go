//go:build !windows

package sandbox

import "time"

// WhileHeld calls f. Only on Windows can another process, such as a virus scanner,
// keep files from being removed, renamed or opened.
func WhileHeld(_ time.Duration, f func() error) error { return f() }

// IsHeld returns false: see [WhileHeld].
func IsHeld(error) bool { return false }
