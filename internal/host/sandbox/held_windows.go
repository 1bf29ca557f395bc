package sandbox

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/windows"
)

const heldRetry = 20 * time.Millisecond

// sharedErrors are the errors of a file that another process has open, such as a virus
// scanner.
var sharedErrors = []error{
	windows.ERROR_SHARING_VIOLATION, windows.ERROR_LOCK_VIOLATION, windows.ERROR_USER_MAPPED_FILE, windows.ERROR_DELETE_PENDING,
}

// heldErrors are errors that another process may be the reason for, or the rights to a file.
// A file that was removed while it was open exists until it is closed, and so does its entry
// in its folder.
var heldErrors = append([]error{windows.ERROR_ACCESS_DENIED, windows.ERROR_DIR_NOT_EMPTY}, sharedErrors...)

// WhileHeld calls f, which removes, renames or opens files, and calls it again while
// it fails because another process has a file open, for at most limit.
func WhileHeld(limit time.Duration, f func() error) error {
	return AwaitHeld(context.Background(), limit, f)
}

// AwaitHeld is WhileHeld, and waits for [HeldShort] at most once ctx has ended.
func AwaitHeld(ctx context.Context, limit time.Duration, f func() error) error {
	begun, stopped := time.Now(), time.Time{}
	for ; ; time.Sleep(heldRetry) {
		err := f()
		if err == nil || !IsHeld(err) {
			return err
		}
		now, limit := time.Now(), limit
		if !IsShared(err) {
			limit = min(limit, removeHeld) // it may be about rights, which do not change
		}
		if stopped.IsZero() && ctx.Err() != nil {
			stopped = now
		}
		if now.Sub(begun) > limit || !stopped.IsZero() && now.Sub(stopped) > HeldShort {
			return err
		}
	}
}

// IsHeld reports whether an error may mean that another process has a file open.
func IsHeld(err error) bool { return isOneOf(err, heldErrors) }

// IsShared reports whether an error means that another process has a file open, and nothing
// else.
func IsShared(err error) bool { return isOneOf(err, sharedErrors) }

func isOneOf(err error, all []error) bool {
	return slices.ContainsFunc(all, func(one error) bool { return errors.Is(err, one) })
}

// openFolder opens a folder for reading.
func openFolder(name string) (*os.File, error) { return os.Open(name) }
