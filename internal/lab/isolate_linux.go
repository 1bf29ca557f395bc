package lab

import (
	"os/exec"
	"syscall"
)

// Isolate keeps a child process out of the terminal's process group, so that
// Ctrl-C reaches the lab alone, and has the kernel kill it if the lab is killed.
func Isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
