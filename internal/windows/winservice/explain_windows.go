package winservice

import (
	"errors"
	"fmt"

	"golang.org/x/sys/windows"
)

// explain adds to an error of Windows its meaning here and its remedy.
func explain(what string, err error) error {
	switch {
	case errors.Is(err, windows.ERROR_ACCESS_DENIED):
		return fmt.Errorf("%s: this user may not: it takes an administrator. Open the console with \"Run as administrator\", "+
			"or run the command as SYSTEM, as Azure's extensions do: %w", what, err)
	case errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST):
		return fmt.Errorf("%s: %w", what, ErrNotInstalled)
	case errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE):
		return fmt.Errorf("%s: the service was removed, and a program still has it open: close Services, Event Viewer and Task Manager, "+
			"then try again: %w", what, err)
	case errors.Is(err, windows.ERROR_SERVICE_LOGON_FAILED):
		return fmt.Errorf("%s: Windows refuses to sign its account in: it must have the right \"Log on as a service\", "+
			"which a group policy may have taken from NT SERVICE\\ALL SERVICES; or choose another account with --account: %w", what, err)
	case errors.Is(err, windows.ERROR_SERVICE_DISABLED):
		return fmt.Errorf("%s: it is disabled; sc config NAME start= auto enables it: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
