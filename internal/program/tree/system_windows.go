package tree

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

func waitUnreaped(int) bool { return false }

func tune(int) {}

// ParseSignal returns an error: Windows has no signals.
func ParseSignal(string) (syscall.Signal, error) {
	return 0, errors.New("there are no signals on Windows: a program is asked to stop with the stop file and Ctrl-Break; leave it out")
}

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
func exitOf(state *os.ProcessState) Exit {
	code := uint32(state.ExitCode())
	switch {
	case code >= firstException:
		by := fmt.Sprintf("exception 0x%08X", code)
		if name := exceptions[windows.NTStatus(code)]; name != "" {
			by += " (" + name + ")"
		}
		return Exit{Code: -1, By: by}
	case syscall.Errno(code) == windows.ERROR_NOT_ENOUGH_QUOTA:
		return Exit{Code: int(code), By: "a quota"}
	}
	return Exit{Code: int(code)}
}

// signalNumber returns 0: Windows has no signals.
func signalNumber(string) int { return 0 }
