package lab

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// Isolate gives a program a process group of its own, which [terminate] asks to end.
func Isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// terminate sends Ctrl-Break to the process and its group: Windows has no SIGTERM.
func terminate(p *os.Process) error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.Pid)) //nolint:gosec // a process id
}
