package snapshot

import (
	"time"

	"github.com/spotworker/spotworker/internal/program/snapshot/machine"
)

// initName is the argument of the executable that makes it the init of a program.
const initName = "spotworker-snapshot-init"

// Requests of the worker to the init.
const (
	verbStart   = "start"   // start the program
	verbRestore = "restore" // continue the program from the images in Dir
	verbTake    = "take"    // make a snapshot in Dir
	verbCheck   = "check"   // whether criu works here
)

// request is a line from the worker to the init.
type request struct {
	Verb string `json:"verb"`

	// For the first request.
	Job    string   `json:"job,omitempty"`    // the job's folder
	Inputs string   `json:"inputs,omitempty"` // the folder of input files; empty for none
	CRIU   string   `json:"criu,omitempty"`   // path of criu
	Path   string   `json:"path,omitempty"`   // of the program
	Args   []string `json:"args,omitempty"`
	Work   string   `json:"work,omitempty"` // working directory
	Meta   *Meta    `json:"meta,omitempty"` // of the snapshot to restore

	// For verbTake and verbRestore: the name of the snapshot in the job's folder.
	Name string `json:"name,omitempty"`

	// Last ends the program with the snapshot.
	Last bool `json:"last,omitempty"`

	// Limit is the time for criu. A criu that takes longer is killed.
	Limit time.Duration `json:"limit,omitempty"`
}

// reply is a line from the init to the worker.
type reply struct {
	Error string `json:"error,omitempty"`

	Refused bool `json:"refused,omitempty"` // criu refused: Error is for a [RefusedError]
	Known   bool `json:"known,omitempty"`   // as in [RefusedError]

	// Differences are those of a [machine.MismatchError].
	Differences []string `json:"differences,omitempty"`

	// Lost says that criu was killed and the program cannot be trusted any longer.
	Lost bool `json:"lost,omitempty"`

	Errno   int            `json:"errno,omitempty"` // of a program that could not be started
	Frozen  time.Duration  `json:"frozen,omitempty"`
	Machine *machine.Facts `json:"machine,omitempty"`
}
