package actions

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spotworker/spotworker/client"
)

// Questions that are asked before all workers are concerned.
const (
	DrainAllQuestion = "Drain all workers?"
	PauseQuestion    = "Stop claiming on all workers?"
)

// PauseKindsQuestion is asked before no more job of the kinds is started.
func PauseKindsQuestion(kinds []string) string {
	return "Start no job of " + strings.Join(kinds, ", ") + "?"
}

// maxReason is the longest reason in the control document, in bytes.
const maxReason = 256

// CheckReason returns an error if a reason is too long for the control document.
func CheckReason(reason string) error {
	if len(reason) > maxReason {
		return fmt.Errorf("the reason has %d bytes; at most %d are allowed", len(reason), maxReason)
	}
	return nil
}

// AskedNotes says for people how many workers a request reaches, and which do not follow. control is the container of
// the control document.
func AskedNotes(action, control string, asked client.Steered) []string {
	notes := []string{fmt.Sprintf("%s: running workers asked: %d; each follows within 15 s", action, len(asked.Workers))}
	if len(asked.Unsteered) > 0 {
		notes = append(notes, fmt.Sprintf("these do not read what is asked, because they lack Reader on the container "+
			"%s: %s", control, strings.Join(asked.Unsteered, ", ")))
	}
	return notes
}

// NotDone adds to the error of a name that no heartbeat has that nothing was done. hint is how
// to do it all the same.
func NotDone(err error, nothing, hint string) error {
	if errors.Is(err, client.ErrUnknownName) {
		return fmt.Errorf("%w; %s%s", err, nothing, hint)
	}
	return err
}
