//go:build unix

package process

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// noFollow keeps the opening of a file from following a link, and from waiting
// for the other end of a pipe.
const noFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK

// hasLimits says that the system limits what a process may use.
const hasLimits = true

// fileBlock is what `ulimit -f` counts in, in bytes.
const fileBlock = 512

// cpuGrace is between the limit of processor time and the one that is final.
const cpuGrace = 5 * time.Second

// argv is the command line of a kind. Its limits are set by a shell that then
// becomes the program: the only way that leaves the program no moment without
// them, and that needs nothing but what every system has.
func (k *Kind) argv() []string {
	var limits []string
	limit := func(flags string, n int64) { limits = append(limits, fmt.Sprintf("ulimit %s %d", flags, n)) }
	if k.Memory > 0 {
		limit(memoryFlag, max(1, k.Memory>>10))
	}
	if k.CPUTime > 0 {
		limit("-S -t", seconds(k.CPUTime))
		limit("-H -t", seconds(k.CPUTime+cpuGrace))
	}
	if k.Disk > 0 {
		limit("-f", max(1, k.Disk/fileBlock))
	}
	if len(limits) == 0 {
		return k.Command
	}
	script := strings.Join(limits, " && ") + ` && exec "$@"`
	return append([]string{"/bin/sh", "-c", script, "sh"}, k.Command...)
}

func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// terminateGroup sends SIGTERM to a program and its group.
func terminateGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGTERM) }

// killGroup sends SIGKILL to a program and its group.
func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

// exitOf says how a program ended.
func exitOf(state *os.ProcessState) exit {
	e := exit{code: state.ExitCode()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		if e.signal = unix.SignalName(status.Signal()); e.signal == "" {
			e.signal = status.Signal().String()
		}
	}
	return e
}

// ownedByUs reports whether a folder is this user's, and no link to one.
func ownedByUs(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || info.Mode()&fs.ModeType != fs.ModeDir {
		return false
	}
	status, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(status.Uid) == os.Geteuid()
}

// takeLock takes a lock that ends with this process.
func takeLock(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, lockError(err)
	}
	return file, nil
}

func lockError(err error) error {
	if err == unix.EWOULDBLOCK { //nolint:errorlint // an errno, as the kernel gives it
		return errLocked
	}
	return err
}
