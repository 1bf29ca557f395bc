package process

import "fmt"

// exitTempFail is the exit code of a program that stopped and wants to continue
// later: EX_TEMPFAIL of sysexits.h.
const exitTempFail = 75

// A shell or a JVM that a signal ended exits with 128 plus the signal's number.
const (
	exitSignalled  = 128
	highestSignals = 64
)

// exit is how a program ended.
type exit struct {
	code int    // -1 if a signal ended it
	by   string // the signal, such as "signal SIGKILL", or the exception on Windows; empty if none did
}

func (e exit) String() string {
	if e.by != "" {
		return "was ended by " + e.by
	}
	return fmt.Sprintf("exited with code %d", e.code)
}

// isKill reports whether SIGKILL ended the program, or a child whose exit code it passes
// on.
func (e exit) isKill() bool {
	const kill = 9
	return e.by == "signal SIGKILL" || e.code == exitSignalled+kill
}

// bySignal reports whether a signal ended the program, or a child whose exit code
// it passes on.
func (e exit) bySignal() bool {
	return e.by != "" || e.code > exitSignalled && e.code <= exitSignalled+highestSignals
}

// facts are what is known when a program has ended.
type facts struct {
	exit    exit
	stopped bool // a stop was requested
	result  bool // a result was renamed into place
	killed  bool // the handler sent SIGKILL
	waited  bool // the handler waited for a notice that would explain a signal
}

// verdict is what the end of a program means for its job.
type verdict int

const (
	done        verdict = iota + 1 // the job is finished
	interrupted                    // continue later; not a failure
	failed                         // a failure
	unclear                        // a signal of unknown origin: wait for a notice
)

var verdictNames = [...]string{"", "done", "interrupted", "failed", "unclear"}

func (v verdict) String() string { return verdictNames[v] }

// decide returns what the end of a program means. After a stop request a program is
// done only if its result is in place. A signal from elsewhere may be the start of
// the VM's shutdown, which the program can see before the worker does: service
// managers signal all processes at once.
func decide(f facts) verdict {
	switch {
	case f.exit.code == 0 && (!f.stopped || f.result):
		return done
	case f.stopped, f.exit.code == exitTempFail:
		return interrupted
	case f.exit.bySignal() && !f.killed && !f.waited:
		return unclear
	default:
		return failed
	}
}
