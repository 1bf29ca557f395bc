//go:build linux || darwin || freebsd || openbsd || dragonfly

package vmshare

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lock is a file whose lock is held. The kernel releases it when the process ends. Child
// processes do not inherit it: Go opens files close-on-exec.
type lock struct{ file *os.File }

// checkOwner returns an [UnsafeError] for a folder in which another user can create or
// replace files.
func checkOwner(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("runtime folder: %w", err)
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		return &UnsafeError{Path: path, Problem: "is a symbolic link"}
	case ok && int(status.Uid) != os.Geteuid():
		return &UnsafeError{Path: path, Problem: fmt.Sprintf("belongs to user %d, not to user %d which this worker runs as", status.Uid,
			os.Geteuid())}
	case info.Mode().Perm()&0o022 != 0:
		return &UnsafeError{Path: path, Problem: fmt.Sprintf("may be written by others (mode %04o)", info.Mode().Perm())}
	}
	return nil
}

// take takes the lock of the file, which it makes if necessary, or fails with errHeld. If
// the file was removed in the meantime it tries again, because other workers lock the new
// one. It follows no symbolic link.
func take(path string) (*lock, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(file, unix.LOCK_EX); err != nil {
			_ = file.Close()
			return nil, err
		}
		if isStill(file, path) {
			return &lock{file}, nil
		}
		_ = file.Close()
	}
}

// isFree reports whether the lock of the file is free.
func isFree(path string) (bool, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	err = flock(file, unix.LOCK_SH)
	if errors.Is(err, errHeld) {
		return false, nil
	}
	return err == nil, err
}

func flock(file *os.File, how int) error {
	for {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return errHeld
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock %s: %w", file.Name(), err)
		}
	}
}

func isStill(file *os.File, path string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	found, err := os.Stat(path)
	return err == nil && os.SameFile(opened, found)
}

func (l *lock) release() { _ = l.file.Close() }

// read returns the content of the file.
func (l *lock) read() ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(l.file, 0, maxFile))
}

// write replaces the content of the file. If the process is killed in the middle, the next
// reader finds the file damaged.
func (l *lock) write(content []byte) {
	if _, err := l.file.WriteAt(content, 0); err == nil {
		_ = l.file.Truncate(int64(len(content)))
	}
}

// sinceBoot returns the kernel's monotonic clock.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(bootClock, &ts); err != nil {
		panic("vmshare: the kernel has no clock: " + err.Error()) // it always has
	}
	return time.Duration(ts.Nano())
}
