package resource

import "golang.org/x/sys/windows"

// Errors of a machine that is out of a resource.
var (
	// diskFull are the errors of a full file system or quota.
	diskFull = []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL, windows.ERROR_DISK_QUOTA_EXCEEDED}

	// fileTooLarge are the errors of a file that is too large for its file system.
	fileTooLarge = []error{windows.ERROR_FILE_TOO_LARGE}

	// resourceErrors are the errors of all other resources.
	resourceErrors = []error{
		windows.ERROR_WRITE_PROTECT, windows.ERROR_IO_DEVICE, windows.ERROR_CRC, windows.ERROR_NOT_READY,
		windows.ERROR_FILE_CORRUPT, windows.ERROR_DISK_CORRUPT, // a broken disk
		windows.ERROR_TOO_MANY_OPEN_FILES, windows.ERROR_NO_SYSTEM_RESOURCES, windows.ERROR_NO_MORE_USER_HANDLES, // handles
		windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_OUTOFMEMORY, windows.ERROR_COMMITMENT_LIMIT,
		windows.ERROR_WORKING_SET_QUOTA, windows.ERROR_PAGEFILE_QUOTA, windows.ERROR_NOT_ENOUGH_QUOTA, // memory
		windows.ERROR_MAX_THRDS_REACHED, // processes
	}

	// machineErrors are the errors of files and programs that another machine may have.
	machineErrors = []error{
		windows.ERROR_BAD_EXE_FORMAT, windows.ERROR_EXE_MACHINE_TYPE_MISMATCH, windows.ERROR_ELEVATION_REQUIRED,
		windows.ERROR_ACCESS_DISABLED_BY_POLICY, windows.ERROR_VIRUS_INFECTED, windows.ERROR_VIRUS_DELETED, // a program
		windows.ERROR_SHARING_VIOLATION, windows.ERROR_LOCK_VIOLATION, windows.ERROR_DIRECTORY, windows.ERROR_NOT_SUPPORTED,
		windows.ERROR_BAD_NETPATH, windows.ERROR_NETNAME_DELETED, windows.ERROR_SEM_TIMEOUT, windows.ERROR_GEN_FAILURE, // a network file system
	}
)

// Space returns how much of a folder's file system is free for this user and its size,
// in bytes; 0, 0 if that is unknown.
func Space(dir string) (free, size int64) {
	var available, all uint64
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil || windows.GetDiskFreeSpaceEx(name, &available, &all, nil) != nil {
		return 0, 0
	}
	return int64(available), int64(all)
}

// OOMKills is unknown here: Windows kills no process when memory runs out.
func OOMKills() (kills int64, ok bool) { return 0, false }

// groupKills is unknown here.
func groupKills() (kills int64, ok bool) { return 0, false }
