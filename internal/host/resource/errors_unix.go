//go:build unix

package resource

import "golang.org/x/sys/unix"

// Errors of a machine that is out of a resource.
var (
	// diskFull are the errors of a full file system or quota.
	diskFull = []error{unix.ENOSPC, unix.EDQUOT}

	// fileTooLarge are the errors of a file that is too large for its file system.
	fileTooLarge = []error{unix.EFBIG}

	// resourceErrors are the errors of all other resources.
	resourceErrors = []error{
		unix.EROFS, unix.EIO, // a broken disk
		unix.EMFILE, unix.ENFILE, // file descriptors
		unix.ENOMEM, unix.EAGAIN, // memory, processes
	}

	// machineErrors are the errors of files and programs that another machine may have.
	machineErrors = []error{
		unix.ENOEXEC, unix.ETXTBSY, unix.EBUSY, unix.ELOOP, unix.ENOTDIR, // a program
		unix.ENODEV, unix.ENXIO, unix.ENOTSUP, unix.ENOSYS, unix.EINTR, // a system without the required feature
		unix.ESTALE, unix.ETIMEDOUT, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ECONNREFUSED, unix.ENOTCONN, // a network file system
		unix.ESRCH, // a process that was ended from elsewhere while it was started
	}
)
