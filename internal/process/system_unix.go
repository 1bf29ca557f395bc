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

// noFollow opens a file without following a link or blocking on a pipe.
const noFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK

// hasLimits says that the system limits what a process may use.
const hasLimits = true

// fileBlock is the unit of `ulimit -f`, in bytes.
const fileBlock = 512

// cpuGrace is the time from the soft limit of processor time to the hard one.
const cpuGrace = 5 * time.Second

// argv returns the command line of a kind. A shell sets the limits and then replaces
// itself with the program, so that the program never runs without them. This needs
// nothing that a system may lack.
func (k *Kind) argv() []string {
	limits := k.limits()
	if limits == "" {
		return k.Command
	}
	return append([]string{systemShell, "-c", limits + ` && exec "$@"`, "sh"}, k.Command...)
}

const systemShell = "/bin/sh"

// limits returns the shell command that sets the limits of a kind, empty without any.
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

// checkLimits returns an error if this machine cannot set the limits of a kind.
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

// checkCommand returns nil: the kernel says at the start what it cannot run.
func checkCommand([]string) error { return nil }

// checkPath returns nil: the kernel takes any path that a kinds file can name.
func checkPath(string) error { return nil }

// group is the process group of a program, whose id is the program's.
type group struct{ id int }

func newGroup(p *os.Process, _ *Kind) (*group, error) { return &group{p.Pid}, nil }

// terminate sends SIGTERM to all processes of the group.
func (g *group) terminate() error { return syscall.Kill(-g.id, syscall.SIGTERM) }

// kill sends SIGKILL to all processes of the group.
func (g *group) kill() error { return syscall.Kill(-g.id, syscall.SIGKILL) }

func (*group) release() {}

// exitOf returns how a program ended.
func exitOf(state *os.ProcessState) exit {
	e := exit{code: state.ExitCode()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		name := unix.SignalName(status.Signal())
		if name == "" {
			name = status.Signal().String()
		}
		e.by = "signal " + name
	}
	return e
}

// Errors of a machine that is out of a resource.
var (
	// diskFull are the errors of a full file system or quota.
	diskFull = []error{unix.ENOSPC, unix.EDQUOT}

	// fileTooLarge are the errors of a file that is too large for its file system.
	fileTooLarge = []error{unix.EFBIG}

	// resourceErrors are the errors of all other resources.
	resourceErrors = []error{
		unix.EROFS, unix.EIO, // a broken disk
		unix.EMFILE, unix.ENFILE, // file descriptors
		unix.ENOMEM, unix.EAGAIN, // memory, processes
	}
)
