//go:build unix

package inputs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockFile takes the lock of an open file, which ends with the file. The error may say
// that another process has it.
func lockFile(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// checkOwner returns an error for a folder in which another user can make files.
func checkOwner(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || ok && int(status.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s must be a folder of the worker's user that no other user may write; remove it, or choose another --scratch", dir)
	}
	return nil
}

// links returns how many names a file has.
func links(_ string, info fs.FileInfo) (uint64, error) {
	status, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New("the number of links is not known")
	}
	return uint64(status.Nlink), nil //nolint:unconvert // its type differs between systems
}
