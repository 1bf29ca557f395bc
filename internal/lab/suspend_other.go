//go:build !unix

package lab

import (
	"errors"
	"os"
)

// suspend reports that this system cannot suspend processes.
func suspend(*os.Process) error { return errors.ErrUnsupported }

// resume does nothing: no process is ever suspended.
func resume(*os.Process) error { return nil }
