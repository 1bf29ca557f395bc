//go:build unix && !linux

package process

import (
	"os/exec"
	"syscall"
)

// memoryFlag is the limit of address space, where the system keeps one.
const memoryFlag = "-v"

// newCommand prepares a command: a group of its own. Where a worker is killed
// without a word its programs go on until they are ended from outside.
func newCommand(argv []string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // from the kinds file; supervise ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// waitUnreaped does not wait: there is no portable way to. The group is ended
// when the program was reaped.
func waitUnreaped(int) bool { return false }

func tune(int) {}

// capacity is unknown here.
func capacity(string) int64 { return 0 }
