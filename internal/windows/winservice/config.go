package winservice

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// ErrNotInstalled is returned for a service that does not exist.
var ErrNotInstalled = errors.New("there is no such service: install it first, with worker service install")

const (
	// stopMargin is the time that the end of the process may take after the drain.
	stopMargin = 20 * time.Second

	// unhealthyLimit is how long loops may stand still before the process ends
	// itself, as with WatchdogSec= in the systemd unit.
	unhealthyLimit = time.Minute
)

// recoveryDelays are the waits before the restarts of a service that failed. The
// last one repeats: a VM without a worker costs money and does nothing.
func recoveryDelays() []time.Duration {
	return []time.Duration{5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute}
}

// Config describes a service.
type Config struct {
	// Name of the service and of its source in the event log.
	Name string

	// Executable is the absolute path of the program, Arguments its command line.
	Executable string
	Arguments  []string

	// Account that the service runs as, such as LocalSystem. Empty is the
	// service's virtual account, which exists as long as the service and has no
	// rights beyond the rights of every user.
	Account string

	// DrainBudget is how long the worker may take to hand over.
	DrainBudget time.Duration
}

// nameForm matches names of services that Windows accepts and that need no quotes
// in a command.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$`)

// ValidateName returns an error that describes the valid names of a service, or nil.
func ValidateName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%.40q cannot be a service's name: give up to 80 letters, digits and ._-, beginning with a letter or digit", name)
	}
	return nil
}

// account returns the account that the service signs in with.
func (c Config) account() string {
	if c.Account == "" {
		return `NT SERVICE\` + c.Name
	}
	return c.Account
}

// preShutdown returns how long the machine waits for the service before it shuts
// down: longer than the drain.
func (c Config) preShutdown() time.Duration { return c.DrainBudget + stopMargin }

// Status is the service manager's information about a service.
type Status struct {
	State       string // as sc query has it, such as RUNNING
	ProcessID   uint32 // 0 if there is no process
	ExitCode    uint32 // of Windows; 1066 means that ServiceExit has it
	ServiceExit uint32 // the program's exit code
	CommandLine string
	Account     string
}

// Running reports whether the service is up.
func (s Status) Running() bool { return s.State == stateRunning }

// Stopped reports whether the service has no process.
func (s Status) Stopped() bool { return s.State == stateStopped }

const (
	stateRunning = "RUNNING"
	stateStopped = "STOPPED"
)

// StartError says that a service was started and ended.
type StartError struct {
	Name   string
	Status Status
}

func (e *StartError) Error() string {
	return fmt.Sprintf("service %s does not start (exit code %d); its log and the event log say why", e.Name, e.Code())
}

// Code returns the exit code of the service's program.
func (e *StartError) Code() int {
	if e.Status.ServiceExit != 0 {
		return int(e.Status.ServiceExit)
	}
	return 1
}
