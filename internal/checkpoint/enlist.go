package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// ErrOtherGroup means that the job is in another group of jobs, or in none.
var ErrOtherGroup = errors.New("the job is in another group")

// Enlist creates the open record of a job of a group, before the job's message is put. From
// then on a listing of the records has every job of the group, also a job that no worker has
// claimed. The caller puts the message next, with resume.
//
// Enlist returns the record that the job had before, unchanged; the zero value means that
// there was none. The error wraps [ErrOtherWork], [ErrUnknownFormat] or [ErrOtherGroup] if
// that record is not of the same job in the same group. It costs one call, and one more if
// there is a record. Enlisting again is harmless. by is recorded as the last writer.
func (s *Store) Enlist(ctx context.Context, d Delivery, by string) (Record, error) {
	r := Record{
		ID: d.ID, Version: Version, Status: Open, Kind: d.Kind, PayloadHash: d.PayloadHash, Group: d.Group, Deadline: d.Deadline,
		Estimate: d.Estimate, InputList: d.InputList, CreatedAt: time.Now(), Token: uuid.NewString(), Write: 1, Owner: by,
	}
	var last error
	for repeat := range maxRepeats {
		if err := pause(ctx, repeat); err != nil {
			return Record{}, err
		}
		// Unlike Put Blob, the service accepts a list of no blocks although blocks are staged.
		_, last = s.put(ctx, &r, "", content{blocks: []string{}})
		if last == nil {
			return Record{}, nil
		}
		if refused(last) || PermanentRefusal(last) != "" {
			break
		}
		found, err := s.findForEdit(ctx, d)
		switch {
		case err != nil:
			return Record{}, err
		case found.Token == r.Token:
			return Record{}, nil // the write took effect, and only its reply was lost
		case found.Version != 0:
			return found, found.checkGroup(d.Group)
		}
	}
	return Record{}, fmt.Errorf("create record of job %s: %w", d.ID, last)
}

// checkGroup returns an error that wraps [ErrOtherGroup] if the job is in another group.
func (r Record) checkGroup(group string) error {
	switch r.Group {
	case group:
		return nil
	case "":
		return fmt.Errorf("%w: its record is in none, and %s", ErrOtherGroup, r.Status)
	}
	return fmt.Errorf("%w: its record is in group %s, and %s", ErrOtherGroup, r.Group, r.Status)
}

// CheckGroup returns the record of a job that is to be put in a group, with the errors of
// [Store.Enlist], and writes nothing. The zero value means that there is none.
func (s *Store) CheckGroup(ctx context.Context, d Delivery) (Record, error) {
	found, err := s.findForEdit(ctx, d)
	if err != nil || found.Version == 0 {
		return Record{}, err
	}
	return found, found.checkGroup(d.Group)
}
