package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// memoryFlag is the flag of ulimit for private writable memory. On Linux it counts
// mapped memory as well as the heap, but not reserved address space, of which Go and
// Java use much.
const memoryFlag = "-d"

// newCommand returns a command in a process group of its own, which ends with the
// worker even if that is killed.
func newCommand(argv []string) *exec.Cmd {
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

// Space returns how much of a folder's file system is free for this user and its size,
// in bytes; 0, 0 if that is unknown.
func Space(dir string) (free, size int64) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize
}

// OOMKills returns how many processes the kernel has killed because memory ran out, in
// the control group of the worker and its programs, or on the whole machine where groups
// are not counted. ok is false if that is unknown.
func OOMKills() (kills int64, ok bool) {
	const cgroups = "/sys/fs/cgroup"
	own, err := os.ReadFile("/proc/self/cgroup")
	if group, found := strings.CutPrefix(strings.TrimSpace(string(own)), "0::"); err == nil && found {
		if kills, ok = counterIn(filepath.Join(cgroups, group, "memory.events"), "oom_kill"); ok {
			return kills, true
		}
	}
	return counterIn("/proc/vmstat", "oom_kill")
}

// counterIn returns the number behind a name in a file with a name and a number a line.
func counterIn(file, name string) (n int64, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if number, found := strings.CutPrefix(line, name+" "); found {
			n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
