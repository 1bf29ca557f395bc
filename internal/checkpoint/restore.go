package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/storage/blobs"
)

// ErrDamaged means that the state in a record is not the saved state.
var ErrDamaged = errors.New("recorded state is damaged")

// restorer reads and restores the states of a record.
type restorer struct {
	owned    *ownership
	sender   *sender
	baseline *baseline
	readers  readers
}

// restore is [Claim.Restore].
func (rs *restorer) restore(ctx context.Context) (*Snapshot, error) {
	unlock, err := rs.owned.lockSettled(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch r := rs.owned.record; {
	case !r.HasState():
		return nil, nil
	case r.StateBlocks > 0:
		newest := stored{of: r.StateHash, hash: r.StateHash, key: r.StateKey, size: r.StateSize, place: r.Layout}
		open := func() (io.ReadCloser, error) { return rs.open(ctx, newest) }
		return &Snapshot{Stream: open, Version: r.StateVersion, Needs: r.StateNeeds, Fraction: r.Fraction, Text: r.Text}, nil
	}
	state, err := rs.owned.store.body(ctx, rs.owned.record)
	if bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobNotFound) {
		if err := rs.refreshForRead(ctx); err != nil {
			return nil, err
		}
		if !rs.owned.record.HasState() {
			return nil, nil
		}
		state, err = rs.owned.store.body(ctx, rs.owned.record)
	}
	if err != nil {
		return nil, err
	}
	r := rs.owned.record
	if blocks.HashOf(state, rs.owned.store.unit, r.StateKey) != r.StateHash {
		return nil, fmt.Errorf("%w: it has %d bytes, not the %d that were saved, or another hash", ErrDamaged, len(state), r.StateSize)
	}
	return &Snapshot{State: state, Version: r.StateVersion, Needs: r.StateNeeds, Fraction: r.Fraction, Text: r.Text}, nil
}

// refreshForRead reads the record once to find out why a read of the state was
// refused. It returns nil if this claim still owns the record, under another ETag.
// If the record was removed it is created again, without its state: the job starts
// from the beginning.
func (rs *restorer) refreshForRead(ctx context.Context) error {
	found, err := rs.owned.store.find(ctx, rs.owned.delivery.ID)
	switch {
	case err != nil:
		return err
	case found == nil:
		rs.owned.recreate()
		rs.baseline.reset()
		return rs.owned.write(ctx, unchanged)
	case found.Token == rs.owned.token:
		rs.owned.refresh(*found)
		return nil
	}
	return rs.owned.conflict(OnConflict(found, rs.owned.delivery, Attempt{Token: rs.owned.token, Write: rs.owned.number}), *found)
}

// ErrReading means that a state cannot be saved yet, because the recorded one is
// still being read. Saving becomes possible when the reader is at its end or
// closed.
var ErrReading = errors.New("the recorded state is still being read")

// ErrReplaced means that a state can no longer be read. The run that it was
// restored for has saved a later one, or the record was removed and created again.
var ErrReplaced = errors.New("the recorded state was replaced")

// readRange reads a range of the body under the record's current ETag. If that has
// changed, one read of the record decides: if the record is still this claim's,
// reading continues under the new ETag.
func (rs *restorer) readRange(ctx context.Context, hash string, buffer []byte, offset int64) error {
	for repeat := 0; ; repeat++ {
		if err := pause(ctx, repeat); err != nil {
			return err
		}
		r := rs.owned.known()
		if r.StateHash != hash {
			return ErrReplaced
		}
		err := rs.owned.store.bodyRange(ctx, r, buffer, offset)
		if bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobNotFound) {
			err = rs.relocate(ctx, r.ETag == rs.owned.known().ETag)
			if err == nil {
				continue
			}
		}
		switch _, conflict := errors.AsType[*ConflictError](err); {
		case err == nil:
			return nil
		case conflict, errors.Is(err, ErrDamaged), refused(err) && !isForbidden(err), PermanentRefusal(err) != "":
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

// isForbidden reports whether the service denies this identity access. That may
// pass: a role can be assigned again, and a token renewed.
func isForbidden(err error) bool {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	return ok &&
		(response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden)
}

// relocate finds the ETag under which the state can be read further. With ask it
// reads the record; otherwise a touch by this claim explains the refusal.
func (rs *restorer) relocate(ctx context.Context, ask bool) error {
	unlock, err := rs.owned.lockSettled(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if !ask {
		return nil
	}
	found, err := rs.owned.store.find(ctx, rs.owned.delivery.ID)
	switch {
	case err != nil:
		return err
	case found == nil:
		return fmt.Errorf("%w: its record was removed", ErrDamaged)
	case found.Token != rs.owned.token:
		return rs.owned.conflict(OnConflict(found, rs.owned.delivery, Attempt{Token: rs.owned.token, Write: rs.owned.number}), *found)
	}
	rs.owned.refresh(*found) // the refusal may concern an older one
	return nil
}

// bodyRange fills the buffer with a part of a record's body, as the body was when the
// record was read.
func (s *Store) bodyRange(ctx context.Context, r Record, buffer []byte, offset int64) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	err := blobs.ReadRange(ctx, s.container.NewBlobClient(jobid.Path(r.ID)), r.ETag, buffer, offset)
	if _, short := errors.AsType[*blobs.LengthError](err); short || bloberror.HasCode(err, bloberror.InvalidRange) {
		return fmt.Errorf("%w: its body is shorter than the %d bytes that were saved", ErrDamaged, r.StateSize)
	}
	return err
}
