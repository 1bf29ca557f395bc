package archive

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bornAt returns when the file with that name and stamp was created, in nanoseconds; 0 if the
// file system does not record it. Unlike all other times of a file, no program can set it, so it
// tells a file from a later file with the same inode.
func bornAt(name string, is stamp) int64 {
	var found unix.Statx_t
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_STATX_DONT_SYNC
	if err := unix.Statx(unix.AT_FDCWD, name, flags, unix.STATX_BTIME|unix.STATX_INO, &found); err != nil {
		return 0
	}
	if found.Mask&unix.STATX_BTIME == 0 || found.Ino != is.inode || found.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return 0
	}
	return time.Unix(found.Btime.Sec, int64(found.Btime.Nsec)).UnixNano()
}
