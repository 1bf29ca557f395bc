package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// VersionError says that a handler cannot go on from a state, because it was
// recorded in a format that the handler does not know.
type VersionError struct {
	Version int   // of the recorded state
	Known   []int // what the handler reads
}

// Error says which version was found, which are known, and what to do.
func (e *VersionError) Error() string {
	known := make([]string, len(e.Known))
	for i, version := range e.Known {
		known[i] = strconv.Itoa(version)
	}
	return fmt.Sprintf("recorded state has version %d; this program reads %s: let workers of the program that wrote it finish the job",
		e.Version, strings.Join(known, ", "))
}

// CheckVersion returns a [*VersionError] if the state that was recorded last has
// none of the versions that the handler knows, and nil on a fresh start. A handler
// that keeps state begins with it:
//
//	if err := j.CheckVersion(1, 2); err != nil {
//		return nil, err
//	}
//
// The error is an ordinary failure, which leaves the state as it is: while
// workers of two versions run side by side, the next attempt may meet one that
// knows the state. If none does, the job ends in the poison queue with that
// reason, and its state stays in its record.
func (j *Job) CheckVersion(known ...int) error {
	if !j.saved.HasState() || slices.Contains(known, j.saved.Version) {
		return nil
	}
	return &VersionError{Version: j.saved.Version, Known: known}
}
