//go:build unix && !linux

package process

import (
	"os/exec"
	"syscall"
)

// memoryFlag is the flag of ulimit for address space, which not all systems enforce.
const memoryFlag = "-v"

// newCommand returns a command in a process group of its own. If the worker is
// killed, its programs continue until they are killed from outside.
func newCommand(argv []string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // from the kinds file; supervise ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// waitUnreaped is not possible in a portable way. The group is killed after the
// program was reaped.
func waitUnreaped(int) bool { return false }

func tune(int) {}

// Space is unknown here.
func Space(string) (free, size int64) { return 0, 0 }

// OOMKills is unknown here.
func OOMKills() (kills int64, ok bool) { return 0, false }
