//go:build unix

package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// noFollow opens a file without following a link or blocking on a pipe.
const noFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK

// lockNew makes a file and takes its lock. The lock is held before the file has its
// name, so that no other worker finds it free.
func lockNew(name string) (*os.File, error) {
	hidden := name + ".new"
	file, err := os.OpenFile(hidden, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(flock(file), os.Rename(hidden, name)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// lockExisting takes the lock of an existing file.
func lockExisting(name string) (*os.File, error) { return openLocked(name, os.O_RDWR|noFollow) }

// lockFolder takes the lock of a folder. It returns nil where the file system has no
// locks for folders, such as NFS.
func lockFolder(dir string) (*os.File, error) {
	file, err := openLocked(dir, unix.O_DIRECTORY|noFollow)
	if errors.Is(err, unix.EBADF) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOLCK) {
		return nil, nil
	}
	return file, err
}

// lockShared takes the lock that all workers of this user share for a folder. The
// folder may be writable by all users, such as /tmp: it does not use another user's
// file of that name.
func lockShared(dir string) (*os.File, error) {
	name := filepath.Join(dir, ".spotworker-scratch.lock-"+strconv.Itoa(os.Geteuid()))
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockOurs(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func lockOurs(file *os.File) error {
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	if !opened.Mode().IsRegular() || !isOurs(opened) {
		return fmt.Errorf("%s belongs to another user, or is not a regular file", file.Name())
	}
	if err := flock(file); err != nil {
		return err
	}
	if found, err := os.Lstat(file.Name()); err != nil || !os.SameFile(opened, found) {
		return errLocked // it was removed: other workers lock a new one
	}
	return nil
}

func openLocked(name string, flags int) (*os.File, error) {
	file, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func flock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return errLocked
	}
	return err
}

// ownedByUs reports whether the path is a folder of this user, and not a link.
func ownedByUs(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.Mode()&fs.ModeType == fs.ModeDir && isOurs(info)
}

func isOurs(info fs.FileInfo) bool {
	status, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(status.Uid) == os.Geteuid()
}
