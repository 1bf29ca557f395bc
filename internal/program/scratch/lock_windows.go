package scratch

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

const noFollow = 0

// lockNew makes a file and takes its lock, at once: Windows lets no other process
// open a file that was opened without sharing.
func lockNew(name string) (*os.File, error) { return openAlone(name, windows.CREATE_NEW) }

// lockExisting takes the lock of an existing file.
func lockExisting(name string) (*os.File, error) { return openAlone(name, windows.OPEN_EXISTING) }

// lockFolder does nothing: Windows has no locks for folders.
func lockFolder(string) (*os.File, error) { return nil, nil }

// lockShared takes the lock that all workers share for a folder.
func lockShared(dir string) (*os.File, error) {
	return openAlone(filepath.Join(dir, ".spotworker-scratch.lock"), windows.OPEN_ALWAYS)
}

// openAlone opens a file that no other process has open. It returns errLocked if one
// has, which may also be a virus scanner: the caller tries again, or leaves the
// folder to the next worker.
func openAlone(name string, disposition uint32) (*os.File, error) {
	path, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	handle, err := windows.CreateFile(path, windows.GENERIC_READ|windows.GENERIC_WRITE, 0, nil, disposition,
		windows.FILE_ATTRIBUTE_NORMAL|windows.FILE_FLAG_OPEN_REPARSE_POINT, 0)
	switch {
	case errors.Is(err, windows.ERROR_SHARING_VIOLATION):
		return nil, errLocked
	case err != nil:
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(handle), name), nil
}

// ownedByUs relies on the permissions of the folder.
func ownedByUs(string) bool { return true }
