package program

import "github.com/spotworker/spotworker/internal/program/tree"

// exitTempFail is the exit code of a program that stopped and wants to continue
// later: EX_TEMPFAIL of sysexits.h.
const exitTempFail = 75

// facts are the known facts about a program that has ended.
type facts struct {
	exit    tree.Exit
	stopped bool // a stop was requested
	result  bool // a result was renamed into place
	killed  bool // the handler sent SIGKILL
	waited  bool // the handler waited for a notice that would explain a signal
}

// exitVerdict is the meaning of a program's end for its job.
type exitVerdict int

const (
	done        exitVerdict = iota + 1 // the job is finished
	interrupted                        // continue later; not a failure
	failed                             // a failure
	unclear                            // a signal of unknown origin: wait for a notice
)

var verdictNames = [...]string{"", "done", "interrupted", "failed", "unclear"}

func (v exitVerdict) String() string { return verdictNames[v] }

// decide returns the meaning of a program's end. After a stop request a program is
// done only if its result is in place. A signal from elsewhere may be the start of
// the VM's shutdown, which the program can see before the worker does: service
// managers signal all processes at once.
func decide(f facts) exitVerdict {
	switch {
	case f.exit.Code == 0 && (!f.stopped || f.result):
		return done
	case f.stopped, f.exit.Code == exitTempFail:
		return interrupted
	case f.exit.BySignal() && !f.killed && !f.waited:
		return unclear
	default:
		return failed
	}
}
