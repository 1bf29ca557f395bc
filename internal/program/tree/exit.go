package tree

import "fmt"

// A shell or a JVM that a signal ended exits with 128 plus the signal's number.
const (
	exitSignalled  = 128
	highestSignals = 64
)

// Exit is how a program ended.
type Exit struct {
	Code int    // -1 if a signal ended it
	By   string // the signal, such as "signal SIGKILL", or the exception on Windows; empty if none did

	// OOMKills is how many processes of the program the kernel ended because all of them
	// together had exceeded [Limits.TotalMemory].
	OOMKills int64

	// Left is how many processes the program left, which were ended then; 0 where that is not
	// known.
	Left int

	// Full says that the processes of the program had reached [Limits.Tasks].
	Full bool
}

func (e Exit) String() string {
	if e.By != "" {
		return "was ended by " + e.By
	}
	return fmt.Sprintf("exited with code %d", e.Code)
}

// Status returns the exit code as a shell has it: 128 and the signal's number after a signal.
func (e Exit) Status() int {
	switch {
	case e.Code >= 0:
		return e.Code
	case signalNumber(e.By) > 0:
		return exitSignalled + signalNumber(e.By)
	}
	return 1
}

// IsKill reports whether SIGKILL ended the program, or a child whose exit code it passes
// on.
func (e Exit) IsKill() bool {
	const kill = 9
	return e.By == "signal SIGKILL" || e.Code == exitSignalled+kill
}

// BySignal reports whether a signal ended the program, or a child whose exit code
// it passes on.
func (e Exit) BySignal() bool {
	return e.By != "" || e.Code > exitSignalled && e.Code <= exitSignalled+highestSignals
}
