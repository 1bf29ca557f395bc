//go:build unix

package archive

import (
	"io/fs"
	"syscall"
)

// heldErrors is empty: no process keeps another from opening a file.
var heldErrors []error

// inodeOf returns the number of a file, and how many names it has.
func inodeOf(info fs.FileInfo) (inode, names uint64) {
	status, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 1
	}
	return uint64(status.Ino), uint64(status.Nlink) //nolint:unconvert // their types differ by system
}

// Allocated returns how many bytes of a file are on the disk, at most its size.
func Allocated(info fs.FileInfo) int64 {
	const block = 512
	if status, ok := info.Sys().(*syscall.Stat_t); ok {
		return min(info.Size(), int64(status.Blocks)*block) //nolint:unconvert // as above
	}
	return info.Size()
}
