package process

import "fmt"

// exitLater is the code with which a program says that it stopped and wants to
// go on later: EX_TEMPFAIL of sysexits.h.
const exitLater = 75

// A shell, a JVM and others that ended because of a signal exit with the
// signal's number and 128.
const (
	exitSignalled  = 128
	highestSignals = 64
)

// exit is how a program ended.
type exit struct {
	code   int    // -1 if a signal ended it
	signal string // its name, empty if none did
}

func (e exit) String() string {
	if e.signal != "" {
		return "was ended by signal " + e.signal
	}
	return fmt.Sprintf("exited with code %d", e.code)
}

// bySignal reports whether a signal ended the program, or one that it ran and
// speaks for.
func (e exit) bySignal() bool {
	return e.signal != "" || e.code > exitSignalled && e.code <= exitSignalled+highestSignals
}

// facts are what is known when a program has ended.
type facts struct {
	exit    exit
	stopped bool // a stop was requested
	result  bool // a result was renamed into place
	killed  bool // we sent SIGKILL
	waited  bool // for a notice that would explain a signal
}

// verdict is what the end of a program means for its job.
type verdict int

const (
	done        verdict = iota + 1 // the result counts
	interrupted                    // go on later; it costs the job nothing
	failed                         // count a failure
	unclear                        // a signal from elsewhere: wait for a notice
)

var verdictNames = [...]string{"", "done", "interrupted", "failed", "unclear"}

func (v verdict) String() string { return verdictNames[v] }

// judge says what the end of a program means. Once a stop was requested nothing
// but a result that is in place counts. A signal that we did not send may be the
// beginning of this VM's end, seen by the program before the worker: service
// managers send theirs to all processes at once.
func judge(f facts) verdict {
	switch {
	case f.exit.code == 0 && (!f.stopped || f.result):
		return done
	case f.stopped, f.exit.code == exitLater:
		return interrupted
	case f.exit.bySignal() && !f.killed && !f.waited:
		return unclear
	default:
		return failed
	}
}
