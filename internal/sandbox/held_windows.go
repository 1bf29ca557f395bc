package sandbox

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/windows"
)

const heldRetry = 20 * time.Millisecond

// heldErrors are the errors of a file that another process has open, such as a virus
// scanner. A file that was removed while it was open exists until it is closed, and
// so does its entry in its folder.
var heldErrors = []error{
	windows.ERROR_SHARING_VIOLATION, windows.ERROR_LOCK_VIOLATION, windows.ERROR_ACCESS_DENIED,
	windows.ERROR_DIR_NOT_EMPTY, windows.ERROR_USER_MAPPED_FILE, windows.ERROR_DELETE_PENDING,
}

// WhileHeld calls f, which removes, renames or opens files, and calls it again while
// it fails because another process has a file open, for at most limit.
func WhileHeld(limit time.Duration, f func() error) error {
	for late := time.Now().Add(limit); ; time.Sleep(heldRetry) {
		err := f()
		if err == nil || !IsHeld(err) || time.Now().After(late) {
			return err
		}
	}
}

// IsHeld reports whether an error may mean that another process has a file open.
func IsHeld(err error) bool {
	return slices.ContainsFunc(heldErrors, func(held error) bool { return errors.Is(err, held) })
}
