package process

import (
	"errors"
	"os"
	"path/filepath"
)

// lockNew takes a lock that ends with this process: a file that is open cannot
// be removed here.
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

// lockAgain takes the lock of a file that is there.
func lockAgain(name string) (*os.File, error) {
	if _, err := os.Lstat(name); err != nil {
		return nil, err
	}
	return lockNew(name)
}

// lockFolder takes none: there are no locks for folders here.
func lockFolder(string) (*os.File, error) { return nil, nil }

// lockShared takes the lock that all workers have for a folder.
func lockShared(dir string) (*os.File, error) {
	return lockNew(filepath.Join(dir, ".spotworker-scratch.lock"))
}

// ownedByUs is left to the rights on the folder.
func ownedByUs(string) bool { return true }
