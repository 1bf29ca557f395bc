//go:build !windows

package lab

import (
	"os"
	"os/exec"
	"syscall"
)

// newStop prepares a worker that is not started yet, and returns what asks it to end.
func newStop(*exec.Cmd) (stop func(*os.Process) error, err error) {
	return func(p *os.Process) error { return p.Signal(syscall.SIGTERM) }, nil
}
