package tree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// memoryFlag is the flag of ulimit for private writable memory. On Linux it counts
// mapped memory as well as the heap, but not reserved address space, of which Go and
// Java use much.
const memoryFlag = "-d"

// NewCommand returns a command in a process group of its own, which ends with the
// worker even if that is killed.
func NewCommand(argv []string, l Limits) *exec.Cmd {
	argv = l.argv(argv)
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // from the kinds file; supervise ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// waitUnreaped waits for the end of a process without reaping it, and reports
// whether that succeeded.
func waitUnreaped(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// mostKillable is the score of the process that the kernel kills first when memory
// runs out.
const mostKillable = "1000"

// tune makes the kernel kill the program rather than the worker when memory runs
// out. The program's children inherit the score.
func tune(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(mostKillable), 0o600) // it has ended, or /proc is not there
}
