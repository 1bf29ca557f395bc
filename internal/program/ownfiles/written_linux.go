package ownfiles

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/host/filetype"
)

// isWritten reports whether a process has a file open for writing: then the kernel grants no
// lease of it for reading.
func isWritten(root *os.Root, name string) bool {
	in, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|filetype.NoWait, 0)
	if err != nil {
		return true // it is another one by now
	}
	defer func() { _ = in.Close() }() // ends the lease
	_, err = unix.FcntlInt(in.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	return errors.Is(err, unix.EAGAIN)
}
