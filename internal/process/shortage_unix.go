//go:build unix

package process

import "golang.org/x/sys/unix"

// shortages are the system's words for having run out of something.
var shortages = []error{
	unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO, // of disk, or of one that works
	unix.EMFILE, unix.ENFILE, // of file descriptors
	unix.ENOMEM, unix.EAGAIN, // of memory, of processes
}
