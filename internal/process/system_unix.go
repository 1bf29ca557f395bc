//go:build unix

package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
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
	limits := k.limits()
	if limits == "" {
		return k.Command
	}
	return append([]string{systemShell, "-c", limits + ` && exec "$@"`, "sh"}, k.Command...)
}

// systemShell is what every system has.
const systemShell = "/bin/sh"

// limits is the shell's command that sets the limits of a kind, empty without any.
func (k *Kind) limits() string {
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
	return strings.Join(limits, " && ")
}

// checkLimits says why this machine does not set the limits of a kind.
func (k *Kind) checkLimits() error {
	limits := k.limits()
	if limits == "" {
		return nil
	}
	if said, err := exec.Command(systemShell, "-c", limits).CombinedOutput(); err != nil { //nolint:gosec,noctx // numbers alone; it ends at once
		return fmt.Errorf("the limits of kind %s cannot be set: %w: %s", k.Name, err, bytes.TrimSpace(said))
	}
	return nil
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

// The system's words for what a machine lacks.
var (
	// diskFull says that a file system has no room.
	diskFull = []error{unix.ENOSPC, unix.EDQUOT}

	// fileTooLarge says that a file system cannot hold a file of that size.
	fileTooLarge = []error{unix.EFBIG}

	// shortages are the words for having run out of anything else.
	shortages = []error{
		unix.EROFS, unix.EIO, // of a disk that works
		unix.EMFILE, unix.ENFILE, // of file descriptors
		unix.ENOMEM, unix.EAGAIN, // of memory, of processes
	}
)
