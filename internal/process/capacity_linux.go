package process

import "golang.org/x/sys/unix"

// capacity returns the size of the file system that a folder is on, in bytes, or
// 0 if it is not known.
func capacity(dir string) int64 {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0
	}
	return int64(s.Blocks) * s.Bsize
}
