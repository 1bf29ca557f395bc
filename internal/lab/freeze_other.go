//go:build !unix

package lab

import (
	"errors"
	"os"
)

// suspend reports that processes cannot be stopped here.
func suspend(*os.Process) error { return errors.ErrUnsupported }

// proceed does nothing: nothing was suspended.
func proceed(*os.Process) error { return nil }
