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

// argv returns the command line of a kind, which has no limits on Windows.
func (k *Kind) argv() []string { return k.Command }

func (k *Kind) checkLimits() error { return nil }

func newCommand(argv []string) *exec.Cmd {
	return exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // from the kinds file; supervise ends it
}

func waitUnreaped(int) bool { return false }

func tune(int) {}

// terminateGroup does nothing: Windows has no SIGTERM, and a program learns of a
// stop from the stop file alone.
func terminateGroup(*os.Process) error { return errors.ErrUnsupported }

// killGroup kills the program alone: Windows has no process groups.
func killGroup(p *os.Process) error { return p.Kill() }

func exitOf(state *os.ProcessState) exit { return exit{code: state.ExitCode()} }

// Errors of a machine that is out of a resource.
var (
	// diskFull are the errors of a full file system or quota.
	diskFull = []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL, windows.ERROR_DISK_QUOTA_EXCEEDED}

	// fileTooLarge are the errors of a file that is too large for its file system.
	fileTooLarge = []error{windows.ERROR_FILE_TOO_LARGE}

	// resourceErrors are the errors of all other resources.
	resourceErrors = []error{
		windows.ERROR_WRITE_PROTECT, windows.ERROR_IO_DEVICE,
		windows.ERROR_TOO_MANY_OPEN_FILES, windows.ERROR_NO_SYSTEM_RESOURCES, windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_OUTOFMEMORY,
	}
)

// capacity is unknown here.
func capacity(string) int64 { return 0 }
