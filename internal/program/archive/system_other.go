//go:build !unix

package archive

import (
	"io/fs"
	"syscall"
)

// heldErrors are the errors of Windows for a file that another process has open, such as
// a virus scanner: ERROR_SHARING_VIOLATION and ERROR_LOCK_VIOLATION.
var heldErrors = []error{syscall.Errno(32), syscall.Errno(33)}

// inodeOf returns 0 and 1: a FileInfo has no numbers here.
func inodeOf(fs.FileInfo) (inode, names uint64) { return 0, 1 }

// Allocated returns the size of a file.
func Allocated(info fs.FileInfo) int64 { return info.Size() }
