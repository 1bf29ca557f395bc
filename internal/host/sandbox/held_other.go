//go:build !windows

package sandbox

import (
	"context"
	"os"
	"syscall"
	"time"
)

// WhileHeld calls f. Only on Windows can another process, such as a virus scanner,
// keep files from being removed, renamed or opened.
func WhileHeld(_ time.Duration, f func() error) error { return f() }

// AwaitHeld calls f: see [WhileHeld].
func AwaitHeld(_ context.Context, _ time.Duration, f func() error) error { return f() }

// IsHeld returns false: see [WhileHeld].
func IsHeld(error) bool { return false }

// IsShared returns false: see [WhileHeld].
func IsShared(error) bool { return false }

// openFolder opens a folder for reading. Anything else is an error: a program may put a
// named pipe in its place, which would block, or a link.
func openFolder(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}
