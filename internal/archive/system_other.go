//go:build !unix

package archive

import "io/fs"

// inodeOf returns 0 and 1: a FileInfo has no numbers here.
func inodeOf(fs.FileInfo) (inode, names uint64) { return 0, 1 }

// Allocated returns the size of a file.
func Allocated(info fs.FileInfo) int64 { return info.Size() }
