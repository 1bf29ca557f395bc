package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Why a record is not opened.
var (
	// ErrOtherWork says that a job's id was used for another kind or payload.
	ErrOtherWork = errors.New("the id was used for other work")

	// ErrReclaimed says that a worker claimed the job while it was being
	// opened: whoever was thought to be dead is not, or has a successor.
	ErrReclaimed = errors.New("the job was claimed meanwhile")

	// ErrUnknownFormat says that a newer version wrote the record, or somebody else.
	ErrUnknownFormat = errUnreadable

	// errNoChange says that there is nothing to write.
	errNoChange = errors.New("nothing to write")
)

// Reopen ends the claim on a job that is recorded as running, so that any message
// of the job may claim it at once. It is for an owner that is known to be dead;
// one that is not is fenced, and what it did since its last save is done again.
// State and counts stay as they are.
//
// Open returns the record as it was: [Running] means that it was opened now,
// any other status that nothing was written, because the job is open already or
// has ended. by goes into the record as its last writer. d needs no message id.
// The error wraps [ErrNotFound], [ErrOtherWork], [ErrUnknownFormat] or
// [ErrReclaimed] when there is nothing to open. An owner that lives and saves
// makes Open repeat its write; after some seconds of that it gives up. Opening
// again is harmless.
func (s *Store) Reopen(ctx context.Context, d Delivery, by string) (Record, error) {
	var owner *string // the token of the claim to end
	return s.edit(ctx, d, by, func(r *Record) (content, error) {
		switch {
		case r.Version == 0:
			return content{}, fmt.Errorf("open record of job %s: %w", d.ID, ErrNotFound)
		case r.Status != Running:
			return content{}, errNoChange
		case owner != nil && *owner != r.Token:
			return content{}, fmt.Errorf("open record of job %s: %w, by %s", d.ID, ErrReclaimed, r.Owner)
		}
		owner = new(r.Token)
		r.Status = Open
		return content{}, nil
	})
}

// CheckReopen returns the record that [Store.Reopen] would find, and its errors, and
// writes nothing.
func (s *Store) CheckReopen(ctx context.Context, d Delivery) (Record, error) {
	found, err := s.findForEdit(ctx, d)
	if err == nil && found.Version == 0 {
		err = fmt.Errorf("open record of job %s: %w", d.ID, ErrNotFound)
	}
	return found, err
}

// GivenUp reports whether the job waits for a person: it is poison, or was
// replayed and is not claimed yet. A replay keeps EndedAt, which the next claim
// clears; so a replay that was cut short is told from a job that is at work again.
func (r Record) GivenUp() bool {
	return r.Status == Poison || r.Status == Open && !r.EndedAt.IsZero()
}

// Replay opens the record of a job that was given up: failures, silent ends and
// paid time are 0 again, and with fromScratch its state is gone. A message of the
// job that says resume may then claim it; put one next. endedAt is when the job
// was given up, in case its record is gone: then Replay creates it.
//
// Replay returns the record as it was. If that is neither the zero value nor
// [Record.GivenUp], nothing was written: nothing is replayed over a job that has
// ended otherwise, or is at work again. The error wraps [ErrOtherWork] or
// [ErrUnknownFormat] where the record is not one to act on. Replaying again
// before the next claim is harmless.
func (s *Store) Replay(ctx context.Context, d Delivery, by string, endedAt time.Time, fromScratch bool) (Record, error) {
	return s.edit(ctx, d, by, func(r *Record) (body content, err error) {
		scratch := fromScratch && r.HasState()
		if endedAt.IsZero() {
			endedAt = time.Now()
		}
		switch {
		case r.Version == 0:
			r.Kind, r.PayloadHash, r.CreatedAt, r.EndedAt = d.Kind, d.PayloadHash, time.Now(), endedAt
		case !r.GivenUp(), r.Status == Open && !scratch:
			return content{}, errNoChange
		case r.EndedAt.IsZero():
			r.EndedAt = endedAt
		}
		r.Status = Open
		r.Failures, r.FailuresTotal, r.Breaks, r.Peak, r.RunTime, r.Progressed, r.FailedBy = 0, 0, 0, 0, 0, false, ""
		r.clearExits()
		if scratch {
			r.clearState()
			r.Fraction, r.Text = 0, ""
			body = content{data: []byte{}}
		}
		return body, nil
	})
}

// Cancel ends a job that was given up as [Cancelled], for a reason: no message
// brings it back from now on. Its state goes. It returns as [Store.Replay] does,
// and creates a record that is gone, so that an old message which turns up later
// does not begin the job anew.
func (s *Store) Cancel(ctx context.Context, d Delivery, by, reason string) (Record, error) {
	return s.edit(ctx, d, by, func(r *Record) (content, error) {
		switch {
		case r.Version == 0:
			r.Kind, r.PayloadHash, r.CreatedAt = d.Kind, d.PayloadHash, time.Now()
		case !r.GivenUp():
			return content{}, errNoChange
		}
		r.Status, r.Reason, r.EndedAt = Cancelled, reason, time.Now()
		r.clearState()
		return content{data: []byte{}}, nil
	})
}

// ResultOf returns the result of a job whose record was read and is [Done].
func (s *Store) ResultOf(ctx context.Context, r Record) ([]byte, error) {
	if r.Status != Done {
		return nil, fmt.Errorf("job %s has no result: it is %s", r.ID, r.Status)
	}
	return s.body(ctx, r)
}

// edit is one write to a record by somebody who is not its owner. The rule is
// that whoever does that writes a fresh token: an owner's next write is then
// refused, its read shows a token that is not its own, and so it stops.
//
// apply makes of the record as it was found what is to be written, and says what
// becomes of the body; with no record it is given one that only has its id. It
// returns [errNoChange] where nothing is to be written, and is called again
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
		found, err := s.findForEdit(ctx, d)
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
		if errors.Is(err, errNoChange) {
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

// findForEdit reads a record for somebody who is not its owner; the zero value
// stands for none. The error wraps [ErrOtherWork] or [ErrUnknownFormat] where
// the record is not one to act on.
func (s *Store) findForEdit(ctx context.Context, d Delivery) (Record, error) {
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
