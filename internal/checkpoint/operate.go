package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// Why a record is not opened.
var (
	// ErrOtherWork says that a job's id was used for another kind or payload.
	ErrOtherWork = errors.New("the id was used for other work")

	// ErrClaimedAnew says that a worker claimed the job while it was being
	// opened: whoever was thought to be dead is not, or has a successor.
	ErrClaimedAnew = errors.New("the job was claimed meanwhile")

	// ErrUnknownFormat says that a newer version wrote the record, or somebody else.
	ErrUnknownFormat = errUnreadable
)

// Open ends the claim on a job that is recorded as running, so that any message
// of the job may claim it at once. It is for an owner that is known to be dead;
// one that is not is fenced, and what it did since its last save is done again.
//
// The rule is that whoever writes a record without being its owner writes a
// fresh token. The owner's next write is refused, its read shows a token that
// is not its own, and so it stops. State and counts stay as they are.
//
// Open returns the record as it was: [Running] means that it was opened now,
// any other status that nothing was written, because the job is open already or
// has ended. by goes into the record as its last writer. d needs no message id.
// The error wraps [ErrNotFound], [ErrOtherWork], [ErrUnknownFormat] or
// [ErrClaimedAnew] when there is nothing to open. An owner that lives and saves makes Open repeat its write;
// after some seconds of that it gives up. Opening again is harmless.
func (s *Store) Open(ctx context.Context, d Delivery, by string) (Record, error) {
	token := uuid.NewString()
	var was Record
	for repeat := range maxRepeats {
		if err := pause(ctx, repeat); err != nil {
			return Record{}, err
		}
		found, err := s.CanOpen(ctx, d)
		switch {
		case err != nil:
			return Record{}, err
		case found.Token == token:
			return was, nil // a write of ours took effect, and only its reply was lost
		case found.Status != Running:
			return found, nil
		case repeat > 0 && found.Token != was.Token:
			return Record{}, fmt.Errorf("open record of job %s: %w, by %s", d.ID, ErrClaimedAnew, found.Owner)
		}
		was = found
		next := found
		next.Status, next.Token, next.Write, next.Owner = Open, token, repeat+1, by
		if _, err = s.put(ctx, &next, found.ETag, content{}); err == nil {
			return was, nil
		}
		if refused(err) {
			return Record{}, fmt.Errorf("open record of job %s: %w", d.ID, err)
		}
	}
	return Record{}, fmt.Errorf("open record of job %s: gave up after %d repeats", d.ID, maxRepeats)
}

// CanOpen returns the record that [Store.Open] would find, and its errors, and
// writes nothing.
func (s *Store) CanOpen(ctx context.Context, d Delivery) (Record, error) {
	found, ruling, err := s.Look(ctx, d)
	switch {
	case err != nil:
		return Record{}, err
	case ruling == Create:
		err = ErrNotFound
	case ruling == Mismatch:
		err = fmt.Errorf("%w: its kind is %q", ErrOtherWork, found.Kind)
	case ruling == Unreadable:
		err = ErrUnknownFormat
	}
	if err != nil {
		return Record{}, fmt.Errorf("open record of job %s: %w", d.ID, err)
	}
	return found, nil
}

// ResultOf returns the result of a job whose record was read and is [Done].
func (s *Store) ResultOf(ctx context.Context, r Record) ([]byte, error) {
	if r.Status != Done {
		return nil, fmt.Errorf("job %s has no result: it is %s", r.ID, r.Status)
	}
	return s.body(ctx, r)
}
