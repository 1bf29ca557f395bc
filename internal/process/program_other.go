//go:build !unix

package process

import (
	"errors"
	"os"
	"os/exec"
)

const (
	noFollow  = 0
	hasLimits = false
)

// argv is the command line of a kind. There are no limits to set here.
func (k *Kind) argv() []string { return k.Command }

func (k *Kind) checkLimits() error { return nil }

func newCommand(argv []string) *exec.Cmd {
	return exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // from the kinds file; supervise ends it
}

func waitUnreaped(int) bool { return false }

func tune(int) {}

// terminateGroup does nothing: there is no SIGTERM here, and a program learns of
// a stop from the stop file alone.
func terminateGroup(*os.Process) error { return errors.ErrUnsupported }

// killGroup ends the program alone: there are no process groups here.
func killGroup(p *os.Process) error { return p.Kill() }

func exitOf(state *os.ProcessState) exit { return exit{code: state.ExitCode()} }
