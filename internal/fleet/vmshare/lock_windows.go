package vmshare

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// lock is a file whose lock is held. Windows releases it when the process ends, and
// lets no process remove a file that is open.
type lock struct{ file *os.File }

// checkOwner returns an [UnsafeError] for a link. Who may write the folder is a matter
// of its access list, which an installation sets.
func checkOwner(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return fmt.Errorf("runtime folder: %w", err)
	case info.Mode()&(os.ModeSymlink|os.ModeIrregular) != 0:
		return &UnsafeError{Path: path, Problem: "is a link"}
	}
	return nil
}

// take takes the lock of the file, which it makes if necessary, or fails with errHeld.
// It follows no link.
func take(path string) (*lock, error) {
	file, err := openShared(path, windows.GENERIC_READ|windows.GENERIC_WRITE, windows.OPEN_ALWAYS)
	if err != nil {
		return nil, err
	}
	if err := lockByte(file, windows.LOCKFILE_EXCLUSIVE_LOCK); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &lock{file}, nil
}

// isFree reports whether the lock of the file is free.
func isFree(path string) (bool, error) {
	file, err := openShared(path, windows.GENERIC_READ, windows.OPEN_EXISTING)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	err = lockByte(file, 0)
	if errors.Is(err, errHeld) {
		return false, nil
	}
	return err == nil, err
}

func openShared(path string, access, disposition uint32) (*os.File, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	handle, err := windows.CreateFile(name, access, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE, nil, disposition,
		windows.FILE_ATTRIBUTE_NORMAL|windows.FILE_FLAG_OPEN_REPARSE_POINT, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(handle), path)
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is not a regular file", path), err, file.Close())
	}
	return file, nil
}

// lockByte locks a byte far behind the content: Windows lets no other process read or
// write a locked byte.
func lockByte(file *os.File, how uint32) error {
	at := windows.Overlapped{OffsetHigh: math.MaxInt32}
	err := windows.LockFileEx(windows.Handle(file.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return errHeld
	default:
		return fmt.Errorf("lock %s: %w", file.Name(), err)
	}
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

// The performance counter, which is the same for all processes and does not stand still
// while the machine sleeps. The other clocks tick every 16 ms.
var (
	kernel           = windows.NewLazySystemDLL("kernel32.dll")
	counter          = kernel.NewProc("QueryPerformanceCounter")
	counterFrequency = kernel.NewProc("QueryPerformanceFrequency")
)

// sinceBoot returns the time that the performance counter has counted.
func sinceBoot() time.Duration {
	var count, perSecond int64
	_, _, _ = counter.Call(uintptr(unsafe.Pointer(&count)))              //nolint:gosec // as the system call wants it; it never fails
	_, _, _ = counterFrequency.Call(uintptr(unsafe.Pointer(&perSecond))) //nolint:gosec // the same
	whole, rest := count/perSecond, count%perSecond
	return time.Duration(whole)*time.Second + time.Duration(rest)*time.Second/time.Duration(perSecond)
}
