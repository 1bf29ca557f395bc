//go:build unix

package process

import "golang.org/x/sys/unix"

// The system's words for what a machine lacks.
var (
	// diskFull says that a file system has no room.
	diskFull = []error{unix.ENOSPC, unix.EDQUOT}

	// fileTooLarge says that a file system cannot hold a file of that size.
	fileTooLarge = []error{unix.EFBIG}

	// shortages are the words for having run out of anything else.
	shortages = []error{
		unix.EROFS, unix.EIO, // of a disk that works
		unix.EMFILE, unix.ENFILE, // of file descriptors
		unix.ENOMEM, unix.EAGAIN, // of memory, of processes
	}
)
