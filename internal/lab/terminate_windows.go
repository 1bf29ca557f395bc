package lab

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// Isolate gives a program a process group of its own, so that Ctrl-C in the console ends
// the lab alone.
func Isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// newStop prepares a worker that is not started yet, and returns what asks it to end:
// Windows has no SIGTERM, and Ctrl-Break needs a console, so its input is closed.
func newStop(cmd *exec.Cmd) (stop func(*os.Process) error, err error) {
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.Args = append(cmd.Args, "--stop-with-stdin")
	return func(*os.Process) error { return input.Close() }, nil
}
