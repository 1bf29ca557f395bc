//go:build unix

package tree

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// HasLimits says that the system limits a program's resources.
const HasLimits = true

// fileBlock is the unit of `ulimit -f`, in bytes.
const fileBlock = 512

// argv returns the command line that starts a program with limits. A shell sets the limits and then replaces
// itself with the program, so that the program never runs without them. This needs
// nothing that a system may lack.
func (l Limits) argv(command []string) []string {
	limits := l.commands()
	if limits == "" {
		return command
	}
	return append([]string{systemShell, "-c", limits + ` && exec "$@"`, "sh"}, command...)
}

const systemShell = "/bin/sh"

// commands returns the shell command that sets the limits, empty without any.
func (l Limits) commands() string {
	var limits []string
	limit := func(flags string, n int64) { limits = append(limits, fmt.Sprintf("ulimit %s %d", flags, n)) }
	if l.Memory > 0 {
		limit(memoryFlag, max(1, l.Memory>>10))
	}
	if l.FileSize > 0 {
		limit("-f", max(1, l.FileSize/fileBlock))
	}
	if l.UserTasks > 0 { // last, since the shell itself counts; dash has another letter
		limits = append(limits, fmt.Sprintf("{ ulimit -u %[1]d 2>/dev/null || ulimit -p %[1]d; }", l.UserTasks))
	}
	return strings.Join(limits, " && ")
}

// Check returns an error if this machine cannot set the limits.
func (l Limits) Check() error {
	limits := l.commands()
	if limits == "" {
		return nil
	}
	said, err := exec.Command(systemShell, "-c", limits).CombinedOutput() //nolint:gosec,noctx // numbers alone; it ends at once
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(said))
	}
	return nil
}

// stopSignals are the signals that a program may be asked to stop with: it can handle each of
// them, and none means something else to a program with an ordinary terminal.
var stopSignals = map[string]syscall.Signal{
	"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "SIGHUP": syscall.SIGHUP, "SIGQUIT": syscall.SIGQUIT,
	"SIGUSR1": syscall.SIGUSR1, "SIGUSR2": syscall.SIGUSR2,
}

// ParseSignal returns the signal of a name that a program may be asked to stop with.
func ParseSignal(name string) (syscall.Signal, error) {
	if known, ok := stopSignals[name]; ok {
		return known, nil
	}
	names := strings.Join(slices.Sorted(maps.Keys(stopSignals)), ", ")
	if name == "SIGKILL" || name == "SIGSTOP" {
		return 0, fmt.Errorf("no program can handle %s, so it could not save: give one of %s", name, names)
	}
	return 0, fmt.Errorf("%q is no signal that a program can be stopped with: give one of %s", name, names)
}

// CheckCommand returns nil: the kernel refuses at the start every command that it cannot run.
func CheckCommand([]string) error { return nil }

// CheckPath returns nil: the kernel takes any path that a kinds file can name.
func CheckPath(string) error { return nil }

// processGroup is the process group of a program, whose id is the program's.
type processGroup struct{ id int }

// terminate sends a signal to all processes of the group.
func (g processGroup) terminate(with syscall.Signal) error { return syscall.Kill(-g.id, with) }

// kill sends SIGKILL to all processes of the group.
func (g processGroup) kill() error { return syscall.Kill(-g.id, syscall.SIGKILL) }

func (processGroup) release() {}

func (processGroup) full() bool { return false }

func (processGroup) exit(state *os.ProcessState) Exit {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok {
		return Exit{Code: state.ExitCode()}
	}
	return exitOf(status)
}

// exitOf returns how a program ended.
func exitOf(status syscall.WaitStatus) Exit {
	if !status.Signaled() {
		return Exit{Code: status.ExitStatus()}
	}
	name := unix.SignalName(status.Signal())
	if name == "" {
		name = status.Signal().String()
	}
	return Exit{Code: -1, By: "signal " + name}
}

// signalNumber returns the number of the signal that [Exit.By] names, 0 for none.
func signalNumber(by string) int {
	name, _ := strings.CutPrefix(by, "signal ")
	return int(unix.SignalNum(name))
}
