package lifecycle

import "fmt"

// State is the current phase of a worker. The zero value is [Start].
type State uint8

const (
	// Start is warm-up: configuration, identity token, queue and containers
	// reachable, own name known, the metadata endpoint polled since before all
	// that.
	Start State = iota
	// Recover finds out how the last run of this VM ended, which jobs it held, and
	// whether an event is already announced.
	Recover
	// Resume makes the worker ready to take work: it checks the storage again,
	// unless warm-up has just done that. It reports readiness on the health endpoint.
	Resume
	// Process is claiming and running jobs.
	Process
	// Shutdown stops claiming, stops work, saves, releases and acknowledges.
	// After a notice the worker then waits here for the end of its VM.
	Shutdown
	// Stopped is the end: the process exits. No event leads out of it.
	Stopped
)

var stateNames = [...]string{
	Start:    "start",
	Recover:  "recover",
	Resume:   "resume",
	Process:  "process",
	Shutdown: "shutdown",
	Stopped:  "stopped",
}

// States returns all states in the order in which a worker goes through them.
func States() []State {
	return []State{Start, Recover, Resume, Process, Shutdown, Stopped}
}

// String returns the lower-case name that logs, metrics and records show.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText makes JSON and slog show the name rather than the number.
func (s State) MarshalText() ([]byte, error) {
	return []byte(s.String()), nil
}
