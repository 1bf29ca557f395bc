package process

import (
	"errors"
	"os"
	"path/filepath"
)

// lockNew takes a lock that ends with this process: Windows does not remove a file
// that is open.
func lockNew(name string) (*os.File, error) {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errLocked
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) { // made by another worker after the removal
		return nil, errLocked
	}
	return file, err
}

// lockExisting takes the lock of an existing file.
func lockExisting(name string) (*os.File, error) {
	if _, err := os.Lstat(name); err != nil {
		return nil, err
	}
	return lockNew(name)
}

// lockFolder does nothing: Windows has no locks for folders.
func lockFolder(string) (*os.File, error) { return nil, nil }

// lockShared takes the lock that all workers share for a folder.
func lockShared(dir string) (*os.File, error) {
	return lockNew(filepath.Join(dir, ".spotworker-scratch.lock"))
}

// ownedByUs relies on the permissions of the folder.
func ownedByUs(string) bool { return true }
