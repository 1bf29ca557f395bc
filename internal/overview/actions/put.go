package actions

import (
	"errors"
	"fmt"

	"github.com/spotworker/spotworker/client"
)

// NotPut returns the error of a job that was not put.
func NotPut(r client.PutResult) error {
	_, isUnknownKind := errors.AsType[*client.UnknownKindError](r.Err)
	switch {
	case isUnknownKind, errors.Is(r.Err, client.ErrOtherGroup), errors.Is(r.Err, client.ErrNotFinished):
		return fmt.Errorf("job %s was not enqueued: %w", r.ID, r.Err)
	case errors.Is(r.Err, client.ErrOtherWork):
		return fmt.Errorf("job %s was not enqueued; give it another id, or run this one again with --again: %w", r.ID, r.Err)
	}
	return fmt.Errorf("job %s may not be enqueued; it can be put again with --id: %w", r.ID, r.Err)
}

// IDsUnchecked is the remark about a put that cannot look for records of the same ids.
func IDsUnchecked(why string) string {
	return "ids are not checked, since the records of jobs cannot be read: " + why + "; the worker that gets a job reads its record first"
}
