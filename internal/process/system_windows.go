package process

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

const noFollow = 0

func waitUnreaped(int) bool { return false }

func tune(int) {}

// firstException is the lowest exit code of a program that an exception ended.
const firstException = 0xC0000000

// exceptions are the exit codes of programs that ended without wanting to.
var exceptions = map[windows.NTStatus]string{
	windows.STATUS_ACCESS_VIOLATION:       "access violation",
	windows.STATUS_NO_MEMORY:              "out of memory",
	windows.STATUS_ILLEGAL_INSTRUCTION:    "illegal instruction",
	windows.STATUS_QUOTA_EXCEEDED:         "out of a quota",
	windows.STATUS_INSUFFICIENT_RESOURCES: "out of system resources",
	windows.STATUS_INTEGER_DIVIDE_BY_ZERO: "division by zero",
	windows.STATUS_STACK_OVERFLOW:         "stack overflow",
	windows.STATUS_COMMITMENT_LIMIT:       "out of memory and page file",
	windows.STATUS_DLL_NOT_FOUND:          "a DLL is missing",
	windows.STATUS_ENTRYPOINT_NOT_FOUND:   "a DLL lacks a function",
	windows.STATUS_CONTROL_C_EXIT:         "Ctrl-C, Ctrl-Break or the end of the console",
	windows.STATUS_DLL_INIT_FAILED:        "a DLL did not start, often for want of desktop heap",
	windows.STATUS_HEAP_CORRUPTION:        "heap corruption",
	windows.STATUS_STACK_BUFFER_OVERRUN:   "buffer overrun, or abort",
	windows.STATUS_IN_PAGE_ERROR:          "a page of it could not be read",
}

// exitOf returns how a program ended. Windows has no signals: a program that crashes,
// or that Ctrl-Break ends, exits with the number of an exception.
func exitOf(state *os.ProcessState) exit {
	code := uint32(state.ExitCode())
	switch {
	case code >= firstException:
		by := fmt.Sprintf("exception 0x%08X", code)
		if name := exceptions[windows.NTStatus(code)]; name != "" {
			by += " (" + name + ")"
		}
		return exit{code: -1, by: by}
	case syscall.Errno(code) == windows.ERROR_NOT_ENOUGH_QUOTA:
		return exit{code: int(code), by: "a quota, such as its kind's cpu_time"}
	}
	return exit{code: int(code)}
}

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
