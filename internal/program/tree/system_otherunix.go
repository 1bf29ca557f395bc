//go:build unix && !linux

package tree

import (
	"errors"
	"os/exec"
	"syscall"

	"github.com/spotworker/spotworker/internal/host/sandbox"
)

// memoryFlag is the flag of ulimit for address space, which not all systems enforce.
const memoryFlag = "-v"

// NewCommand returns a command in a process group of its own. If the worker is
// killed, its programs continue until they are killed from outside.
func NewCommand(argv []string, l Limits) *exec.Cmd {
	argv = l.argv(argv)
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // from the kinds file; supervise ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// Groups are control groups, which only Linux has.
type Groups struct{}

// OpenGroups fails here.
func OpenGroups() (*Groups, error) {
	return nil, errors.New("only Linux has control groups")
}

// LimitsMemory returns false.
func (*Groups) LimitsMemory() bool { return false }

// LimitsTasks returns false.
func (*Groups) LimitsTasks() bool { return false }

// LimitsCPUs returns false.
func (*Groups) LimitsCPUs() bool { return false }

// HidesGPUs returns an error.
func (*Groups) HidesGPUs() error { return errors.New("only Linux has control groups") }

// begin starts a command in a process group of its own. Processes that leave it outlive
// their program.
func begin(cmd *exec.Cmd, _ Limits, _ *Groups, _ *sandbox.User) (group, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return processGroup{cmd.Process.Pid}, nil
}

// waitUnreaped is not possible in a portable way. The group is killed after the
// program was reaped.
func waitUnreaped(int) bool { return false }

func tune(int) {}
