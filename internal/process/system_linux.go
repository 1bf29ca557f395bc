package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// memoryFlag is the limit of private writable memory. On Linux it counts what
// is mapped as well as the heap, but not what is only reserved, as Go and Java
// do in great amounts.
const memoryFlag = "-d"

// newCommand prepares a command: a group of its own, which ends with the worker
// even if that is killed.
func newCommand(argv []string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // from the kinds file; supervise ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// waitUnreaped waits until a process has ended, and leaves it as it is. It
// reports whether it could.
func waitUnreaped(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// mostKillable is the kernel's word for "end this first when memory runs out".
const mostKillable = "1000"

// tune makes a program, rather than the worker, the one that the kernel ends
// when memory runs out. Processes that it starts inherit it.
func tune(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(mostKillable), 0o600) // it has ended, or /proc is not there
}

// capacity returns the size of the file system that a folder is on, in bytes, or
// 0 if it is not known.
func capacity(dir string) int64 {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0
	}
	return int64(s.Blocks) * s.Bsize
}
