package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/checkpoint/runs"
	"github.com/spotworker/spotworker/internal/jobid"
)

// Why an operation of somebody other than the owner is refused.
var (
	// ErrOtherWork means that the job's id was used for another kind or payload.
	ErrOtherWork = errors.New("the id was used for other work")

	// ErrReclaimed means that a worker acquired the record while it was being
	// reopened. The owner that was believed dead is alive, or has a successor.
	ErrReclaimed = errors.New("a worker has claimed the job in the meantime")

	// ErrNotEnded means that a job which waits or runs cannot be put again.
	ErrNotEnded = errors.New("the job has not ended")

	// ErrUnknownFormat means that the record was written by a newer version, or by
	// another program.
	ErrUnknownFormat = errUnreadable

	// errNoChange means that there is nothing to write.
	errNoChange = errors.New("nothing to write")
)

// Reopen ends the claim on a job that is recorded as running, so that any message
// of the job may acquire it at once. It is for an owner that is known to be dead:
// an owner that is alive is fenced, and its work since the last save is repeated.
// State and counters stay as they are.
//
// Reopen returns the record as it was. [Running] means that it was reopened now;
// with any other status nothing was written, because the job is open already or
// has ended. by is recorded as the last writer. d needs no message id. The error
// wraps [ErrNotFound], [ErrOtherWork], [ErrUnknownFormat] or [ErrReclaimed] when
// the record cannot be reopened. An owner that is alive and saves makes Reopen
// repeat its write, for some seconds at most. Reopening again is harmless.
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
		lived := min(r.NextWrite/2, r.ReadAt.Sub(r.ModifiedAt))
		r.endLost(lived)
		r.Runs = r.runEnded(runs.Lost, r.ModifiedAt.Add(lived))
		r.Status = Open
		return content{}, nil
	})
}

// CheckReopen returns the record that [Store.Reopen] would find, and its errors,
// without writing.
func (s *Store) CheckReopen(ctx context.Context, d Delivery) (Record, error) {
	found, err := s.findForEdit(ctx, d)
	if err == nil && found.Version == 0 {
		err = fmt.Errorf("open record of job %s: %w", d.ID, ErrNotFound)
	}
	return found, err
}

// GivenUp reports whether the job waits for an operator: it is poison, or it was
// replayed and is not claimed yet. A replay keeps EndedAt, which the next claim
// clears; this distinguishes an unfinished replay from a job that runs again.
func (r Record) GivenUp() bool {
	return r.Status == Poison || r.Status == Open && !r.EndedAt.IsZero()
}

// Replay opens the record of a job that was given up. It resets failures, unclean
// exits and run time to 0, and with fromScratch removes state and outputs. The caller then
// puts a message with resume, which may claim the job. If the record is gone,
// Replay creates it, with endedAt as the time at which the job was given up.
//
// Replay returns the record as it was. If that is neither the zero value nor
// [Record.GivenUp], or [Record.IsPast] of d, nothing was written: the job has ended
// otherwise, or runs again. The error wraps [ErrOtherWork] or [ErrUnknownFormat] when the record must
// not be changed. Replaying again before the next claim is harmless.
func (s *Store) Replay(ctx context.Context, d Delivery, by string, endedAt time.Time, fromScratch bool) (Record, error) {
	return s.edit(ctx, d, by, func(r *Record) (body content, err error) {
		scratch := fromScratch && r.HasWork()
		if endedAt.IsZero() {
			endedAt = time.Now()
		}
		switch {
		case r.Version == 0:
			r.Kind, r.PayloadHash, r.Group, r.CreatedAt, r.EndedAt = d.Kind, d.PayloadHash, d.Group, time.Now(), endedAt
		case !r.GivenUp(), r.IsPast(d.Again), r.Status == Open && !scratch:
			return content{}, errNoChange
		case r.EndedAt.IsZero():
			r.EndedAt = endedAt
		}
		r.Status = Open
		r.Failures, r.FailuresTotal, r.Breaks, r.Peak, r.RunTime, r.Progressed, r.FailedBy, r.MoveReason = 0, 0, 0, 0, 0, false, "", ""
		r.clearExits()
		if scratch {
			r.clearState()
			r.Fraction, r.Text = 0, ""
			body = content{data: []byte{}}
		}
		return body, nil
	})
}

// Again opens the record of a job that has ended in any way, so that the job runs once more,
// from scratch, as the work of d, which may be other work than before. The result, the state and
// the counts of the ended run are gone; its outcome stays in the timeline. The caller then puts a
// message with resume and with the number that Again returns, which alone may claim the job:
// messages of the ended run are obsolete.
//
// Again returns the record as it was, the zero value if there was none: then nothing was
// written. Before the next claim it writes nothing either, and returns the same number, so that a
// repeat finishes what a crash has cut short. The error wraps [ErrNotEnded] if the job is open or
// running otherwise, [ErrOtherGroup] or [ErrUnknownFormat].
func (s *Store) Again(ctx context.Context, d Delivery, by string) (was Record, again int, err error) {
	was, err = s.edit(ctx, Delivery{ID: d.ID}, by, func(r *Record) (content, error) {
		if err := r.checkAgain(d); err != nil {
			return content{}, err
		}
		if !r.Status.Final() {
			return content{}, errNoChange
		}
		r.startAgain(d, by, time.Now())
		return content{data: []byte{}}, nil
	})
	if again = was.Again; was.Status.Final() {
		again = was.Generation + 1
	}
	return was, again, err
}

// CheckAgain returns the record that [Store.Again] would find, and its errors, without writing.
func (s *Store) CheckAgain(ctx context.Context, d Delivery) (Record, error) {
	found, err := s.findForEdit(ctx, Delivery{ID: d.ID})
	if err == nil {
		err = found.checkAgain(d)
	}
	return found, err
}

// checkAgain returns why a job cannot be put again as d.
func (r *Record) checkAgain(d Delivery) error {
	wasPutAgain := r.Status == Open && r.Again > 0 && r.Again == r.Generation && r.sameWork(d)
	switch {
	case r.Version == 0:
		return nil
	case d.Group != "" && r.checkGroup(d.Group) != nil:
		return r.checkGroup(d.Group)
	case !r.Status.Final() && !wasPutAgain:
		return fmt.Errorf("%w: it is %s", ErrNotEnded, r.Status)
	}
	return nil
}

// startAgain changes the record of a job that has ended to that of a job which was put again. The
// identity, the log, the ledger and the timeline stay.
func (r *Record) startAgain(d Delivery, by string, now time.Time) {
	if _, told := r.Runs.Last(r.Generation); !told && r.Status == Done {
		r.Runs = r.runEnded(runs.Done, r.EndedAt)
	}
	before := *r
	*r = Record{
		ID: r.ID, Status: Open, Kind: d.Kind, PayloadHash: d.PayloadHash, Group: r.Group, Generation: before.Generation + 1,
		Again: before.Generation + 1, Deadline: d.Deadline, Estimate: d.Estimate, InputList: d.InputList, CreatedAt: before.CreatedAt,
		Ledger: before.Ledger, Log: before.Log, unknown: before.unknown,
	}
	r.Runs = before.Runs.With(runs.Run{Delivery: r.Again, Worker: by, Start: now, Took: time.Millisecond, Outcome: runs.Again})
}

// Purge ends a job that was given up as [Cancelled], with a reason, and removes its
// state and outputs. No message can start the job from now on. Purge returns what
// [Store.Replay] does. If the record is gone Purge creates it, so that an old
// message that appears later does not start the job again.
func (s *Store) Purge(ctx context.Context, d Delivery, by, reason string) (Record, error) {
	return s.edit(ctx, d, by, func(r *Record) (content, error) {
		switch {
		case r.Version == 0:
			r.Kind, r.PayloadHash, r.Group, r.CreatedAt = d.Kind, d.PayloadHash, d.Group, time.Now()
		case !r.GivenUp(), r.IsPast(d.Again):
			return content{}, errNoChange
		}
		return r.cancel(reason), nil
	})
}

// Cancel ends a job that waits or runs as [Cancelled], with a reason, and removes its
// state and outputs. From then on nothing of the job is committed: its owner is fenced, and no
// message can start it. A job that no worker has claimed yet has no record: with
// create Cancel makes one, which matches every kind and payload, and otherwise the
// error wraps [ErrNotFound].
//
// Cancel returns the record as it was; the zero value means that there was none. A
// job that has ended, or is [Poison], is left alone. The error wraps
// [ErrUnknownFormat] when the record must not be changed. Cancelling again is
// harmless.
func (s *Store) Cancel(ctx context.Context, id, by, reason string, create bool) (Record, error) {
	return s.edit(ctx, Delivery{ID: id}, by, func(r *Record) (content, error) {
		switch {
		case r.Version == 0 && !create:
			return content{}, fmt.Errorf("cancel job %s: %w", id, ErrNotFound)
		case r.Version == 0:
			r.CreatedAt = time.Now()
		case r.Status.Final():
			return content{}, errNoChange
		}
		if r.Status == Running {
			r.Ledger.Redone += min(r.NextWrite, r.ReadAt.Sub(r.ModifiedAt)) // its owner is alive until now
			r.Runs = r.runEnded(runs.Cancelled, r.ReadAt)
		}
		r.NextWrite = 0
		return r.cancel(reason), nil
	})
}

// cancel changes the record to a cancelled job's, and returns its body.
func (r *Record) cancel(reason string) content {
	r.Status, r.Reason, r.EndedAt = Cancelled, reason, time.Now()
	r.clearState()
	return content{data: []byte{}}
}

// ErrChanged means that a record was written or removed since it was read.
var ErrChanged = errors.New("its record was written or removed in the meantime")

// Remove deletes the record of a job that is done or cancelled, as it was read or listed.
// From then on nothing protects the job's id: a message of it that is left, or a new
// one, starts the job again. The error wraps [ErrChanged] if somebody wrote or removed the
// record since.
func (s *Store) Remove(ctx context.Context, r Record) error {
	if r.Status != Done && r.Status != Cancelled || r.Version != Version {
		return fmt.Errorf("remove record of job %s: it is %s; only done and cancelled jobs are over", r.ID, r.Status)
	}
	removed, err := s.blobs.Delete(ctx, jobid.Path(r.ID), r.ETag)
	if err == nil && !removed {
		err = ErrChanged
	}
	if err != nil {
		return fmt.Errorf("remove record of job %s: %w", r.ID, err)
	}
	return nil
}

// ResultOf returns the result of a job whose record was read and is [Done].
func (s *Store) ResultOf(ctx context.Context, r Record) ([]byte, error) {
	if r.Status != Done {
		return nil, fmt.Errorf("job %s has no result: it is %s", r.ID, r.Status)
	}
	return s.body(ctx, r)
}

// edit writes a record on behalf of somebody who is not its owner. It always writes
// a fresh token: the owner's next write is then refused, its read finds a foreign
// token, and it stops.
//
// apply turns the found record into the record to write, and returns the new body;
// without a record it makes one of nothing but an id. It returns
// [errNoChange] when nothing needs to be written, and is called again for each
// repeat. edit returns the record as it was before the write; the zero value means
// that there was none.
//
// After a refusal or an unknown outcome one read decides. If the record keeps
// changing, edit gives up after some seconds.
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
			body = content{blocks: []string{}} // unlike Put Blob, the service accepts this although blocks are staged
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
// means that there is none. The error wraps [ErrOtherWork] or [ErrUnknownFormat]
// when the record must not be changed. A delivery with nothing but an id matches
// every record of it.
func (s *Store) findForEdit(ctx context.Context, d Delivery) (Record, error) {
	found, ruling, err := s.Lookup(ctx, d)
	if d == (Delivery{ID: d.ID}) && err == nil && ruling != Create {
		ruling = OnDelivery(&found, Delivery{ID: d.ID, Kind: found.Kind, PayloadHash: found.PayloadHash, Again: Newest}, found.ReadAt)
	}
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
