//go:build unix && !linux

package tree

import (
	"os/exec"
	"syscall"
)

// memoryFlag is the flag of ulimit for address space, which not all systems enforce.
const memoryFlag = "-v"

// NewCommand returns a command in a process group of its own. If the worker is
// killed, its programs continue until they are killed from outside.
func NewCommand(argv []string, l Limits) *exec.Cmd {
	argv = l.argv(argv)
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // from the kinds file; supervise ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// waitUnreaped is not possible in a portable way. The group is killed after the
// program was reaped.
func waitUnreaped(int) bool { return false }

func tune(int) {}
