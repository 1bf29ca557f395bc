package process

import "golang.org/x/sys/windows"

// The system's words for what a machine lacks.
var (
	// diskFull says that a file system has no room.
	diskFull = []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL, windows.ERROR_DISK_QUOTA_EXCEEDED}

	// fileTooLarge says that a file system cannot hold a file of that size.
	fileTooLarge = []error{windows.ERROR_FILE_TOO_LARGE}

	// shortages are the words for having run out of anything else.
	shortages = []error{
		windows.ERROR_WRITE_PROTECT, windows.ERROR_IO_DEVICE,
		windows.ERROR_TOO_MANY_OPEN_FILES, windows.ERROR_NO_SYSTEM_RESOURCES, windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_OUTOFMEMORY,
	}
)
