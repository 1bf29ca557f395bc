package lab

import "syscall"

// apart keeps a child out of the terminal's process group, so that Ctrl-C
// reaches the lab alone, and lets the kernel kill it if the lab itself is killed.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
