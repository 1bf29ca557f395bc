//go:build unix

package hook

import (
	"os/exec"
	"syscall"
)

// group has a kill end the command with all processes of its group: those that it started,
// unless they left the group.
func group(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}
