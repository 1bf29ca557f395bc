package process

import (
	"errors"
	"os"
	"os/exec"

	"golang.org/x/sys/windows"
)

const (
	noFollow  = 0
	hasLimits = false
)

// argv is the command line of a kind. There are no limits to set here.
func (k *Kind) argv() []string { return k.Command }

func (k *Kind) checkLimits() error { return nil }

func newCommand(argv []string) *exec.Cmd {
	return exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // from the kinds file; supervise ends it
}

func waitUnreaped(int) bool { return false }

func tune(int) {}

// terminateGroup does nothing: there is no SIGTERM here, and a program learns of
// a stop from the stop file alone.
func terminateGroup(*os.Process) error { return errors.ErrUnsupported }

// killGroup ends the program alone: there are no process groups here.
func killGroup(p *os.Process) error { return p.Kill() }

func exitOf(state *os.ProcessState) exit { return exit{code: state.ExitCode()} }

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

// capacity is unknown here.
func capacity(string) int64 { return 0 }
