package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// VersionError is the error of a handler that does not know the format of the saved
// state.
type VersionError struct {
	Version int   // of the saved state
	Known   []int // versions that the handler knows
}

// Error names the version and the known ones, and says what to do.
func (e *VersionError) Error() string {
	known := make([]string, len(e.Known))
	for i, version := range e.Known {
		known[i] = strconv.Itoa(version)
	}
	return fmt.Sprintf("recorded state has version %d; this program reads %s: let workers of the program that wrote it finish the job",
		e.Version, strings.Join(known, ", "))
}

// CheckVersion returns a [*VersionError] if the saved state has none of the known
// versions. On a fresh start it returns nil. A handler with a state begins with it:
//
//	if err := j.CheckVersion(1, 2); err != nil {
//		return nil, err
//	}
//
// The error is an ordinary failure and leaves the state unchanged: while workers of two
// versions run side by side, the next attempt may reach a worker that knows the state.
// If no attempt does, the job is dead-lettered with that reason, and its state stays in
// its record.
func (j *Job) CheckVersion(known ...int) error {
	if !j.saved.HasState() || slices.Contains(known, j.saved.Version) {
		return nil
	}
	return &VersionError{Version: j.saved.Version, Known: known}
}
