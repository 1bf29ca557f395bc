package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// edit is one write to a record by somebody who is not its owner. The rule is
// that whoever does that writes a fresh token: an owner's next write is then
// refused, its read shows a token that is not its own, and so it stops.
//
// apply makes of the record as it was found what is to be written, and says what
// becomes of the body; with no record it is given one that only has its id. It
// returns [errLeaveAlone] where nothing is to be written, and is called again
// for each repeat. edit returns the record as it was before its write, or where
// it wrote nothing as it is; the zero value stands for none.
//
// After a refusal or an unknown outcome one read decides. Edits of a record that
// changes all the time give up after some seconds.
func (s *Store) edit(ctx context.Context, d Delivery, by string, apply func(*Record) (content, error)) (was Record, err error) {
	token := uuid.NewString()
	var lasting error // a refusal that a repeat does not change
	for repeat := range maxRepeats {
		if err := pause(ctx, repeat); err != nil {
			return Record{}, err
		}
		found, err := s.outside(ctx, d)
		switch {
		case err != nil:
			return Record{}, err
		case found.Token == token:
			return was, nil // a write of ours took effect, and only its reply was lost
		case lasting != nil:
			return Record{}, lasting
		}
		next := found
		next.ID = d.ID
		body, err := apply(&next)
		if errors.Is(err, errLeaveAlone) {
			return found, nil
		}
		if err != nil {
			return Record{}, err
		}
		if found.ETag == "" {
			body = content{blocks: []string{}} // which, unlike Put Blob, gets past staged blocks
		}
		was = found
		next.Version, next.Token, next.Write, next.Owner = Version, token, repeat+1, by
		if _, err = s.put(ctx, &next, found.ETag, body); err == nil {
			return was, nil
		}
		if refused(err) {
			return Record{}, fmt.Errorf("write record of job %s: %w", d.ID, err)
		}
		if PermanentRefusal(err) != "" {
			lasting = fmt.Errorf("write record of job %s: %w", d.ID, err)
		}
	}
	return Record{}, fmt.Errorf("write record of job %s: gave up after %d repeats", d.ID, maxRepeats)
}

// outside reads a record for somebody who is not its owner; the zero value
// stands for none. The error wraps [ErrOtherWork] or [ErrUnknownFormat] where
// the record is not one to act on.
func (s *Store) outside(ctx context.Context, d Delivery) (Record, error) {
	found, ruling, err := s.Lookup(ctx, d)
	switch {
	case err != nil:
		return Record{}, err
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
