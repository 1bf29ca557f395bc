package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// ErrDamaged means that the state in a record is not the one that was saved.
var ErrDamaged = errors.New("recorded state is damaged")

// Restore returns the recorded state, or nil if there is none. A state that is kept
// in blocks is returned as a stream that is read under ctx, see [Claim.OpenState].
// The error wraps [ErrDamaged] if the state is not what was saved, and is a
// [*ConflictError] if another delivery has acquired the record.
func (c *Claim) Restore(ctx context.Context) (*Snapshot, error) {
	s, err := c.restore(ctx)
	if err == nil && s != nil && s.Stream != nil && c.Record().isJoined() {
		return c.inMemory(ctx, s)
	}
	return s, err
}

func (c *Claim) restore(ctx context.Context) (*Snapshot, error) {
	unlock, err := c.lockSettled(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch r := c.record; {
	case !r.HasState():
		return nil, nil
	case r.StateBlocks > 0:
		newest := stored{of: r.StateHash, hash: r.StateHash, size: r.StateSize}
		open := func() (io.ReadCloser, error) { return c.open(ctx, newest) }
		return &Snapshot{Stream: open, Version: r.StateVersion, Fraction: r.Fraction, Text: r.Text}, nil
	}
	state, err := c.store.body(ctx, c.record)
	if bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobNotFound) {
		if err := c.refreshForRead(ctx); err != nil {
			return nil, err
		}
		if !c.record.HasState() {
			return nil, nil
		}
		state, err = c.store.body(ctx, c.record)
	}
	if err != nil {
		return nil, err
	}
	r := c.record
	if hashOf(state) != r.StateHash {
		return nil, fmt.Errorf("%w: it has %d bytes, not the %d that were saved, or another hash", ErrDamaged, len(state), r.StateSize)
	}
	c.hold(state)
	return &Snapshot{State: state, Version: r.StateVersion, Fraction: r.Fraction, Text: r.Text}, nil
}

// refreshForRead reads the record once to find out why a read of the state was
// refused. It returns nil if this claim still owns the record, under another ETag.
// If the record was removed it is created again, without its state: the job starts
// from the beginning.
func (c *Claim) refreshForRead(ctx context.Context) error {
	found, err := c.store.find(ctx, c.delivery.ID)
	switch {
	case err != nil:
		return err
	case found == nil:
		c.recreate()
		c.startAfresh()
		return c.write(ctx, unchanged)
	case found.Token == c.token:
		c.refresh(*found)
		return nil
	}
	return c.conflict(OnConflict(found, c.delivery, Attempt{Token: c.token, Write: c.number}), *found)
}

// startAfresh forgets the state that the claim began with.
func (c *Claim) startAfresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = ""
}

// ErrReading means that a state cannot be saved yet, because the recorded one is
// still being read. Saving becomes possible when the reader is at its end or
// closed.
var ErrReading = errors.New("the recorded state is still being read")

// ErrReplaced means that a state cannot be read any more. The run that it was
// restored for has saved a later one, or the record was removed and created again.
var ErrReplaced = errors.New("the recorded state was replaced")

// OpenState returns the recorded state as a stream, or nil if there is none. Until
// the stream is at its end or closed, saves return [ErrReading]; touches do not.
//
// Corruption is always reported: the final Read returns an error that wraps
// [ErrDamaged] instead of the last bytes. Read returns a [*ConflictError] once
// another delivery has acquired the record, and [ErrReplaced] if the state was
// replaced otherwise. While storage is unavailable or denies access, Read retries
// until ctx ends.
func (c *Claim) OpenState(ctx context.Context) (io.ReadCloser, error) {
	s, err := c.Restore(ctx)
	switch {
	case err != nil || s == nil:
		return nil, err
	case s.Stream != nil:
		return s.Stream()
	}
	return io.NopCloser(bytes.NewReader(s.State)), nil
}

// readRange reads a range of the body under the record's current ETag. If that has
// changed, one read of the record decides: if the record is still this claim's,
// reading continues under the new ETag.
func (c *Claim) readRange(ctx context.Context, hash string, buffer []byte, offset int64) error {
	for repeat := 0; ; repeat++ {
		if err := pause(ctx, repeat); err != nil {
			return err
		}
		r := c.Record()
		if r.StateHash != hash {
			return ErrReplaced
		}
		err := c.store.bodyRange(ctx, r, buffer, offset)
		if bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobNotFound) {
			err = c.relocate(ctx, r.ETag == c.Record().ETag)
			if err == nil {
				continue
			}
		}
		switch _, conflict := errors.AsType[*ConflictError](err); {
		case err == nil:
			return nil
		case conflict, errors.Is(err, ErrDamaged), refused(err) && !isForbidden(err):
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
func (c *Claim) relocate(ctx context.Context, ask bool) error {
	unlock, err := c.lockSettled(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if !ask {
		return nil
	}
	found, err := c.store.find(ctx, c.delivery.ID)
	switch {
	case err != nil:
		return err
	case found == nil:
		return fmt.Errorf("%w: its record was removed", ErrDamaged)
	case found.Token != c.token:
		return c.conflict(OnConflict(found, c.delivery, Attempt{Token: c.token, Write: c.number}), *found)
	}
	c.refresh(*found) // the refusal may concern an older one
	return nil
}

// bodyRange fills the buffer with a part of a record's body, as the body was when the
// record was read.
func (s *Store) bodyRange(ctx context.Context, r Record, buffer []byte, offset int64) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	reply, err := s.blob(r.ID).DownloadStream(ctx, &blob.DownloadStreamOptions{
		Range: blob.HTTPRange{Offset: offset, Count: int64(len(buffer))}, AccessConditions: under(r.ETag),
	})
	if bloberror.HasCode(err, bloberror.InvalidRange) {
		return fmt.Errorf("%w: its body is shorter than the %d bytes that were saved", ErrDamaged, r.StateSize)
	}
	if err != nil {
		return err
	}
	body := reply.NewRetryReader(ctx, nil)
	defer func() { _ = body.Close() }()
	if value(reply.ContentLength) != int64(len(buffer)) {
		return fmt.Errorf("%w: its body is shorter than the %d bytes that were saved", ErrDamaged, r.StateSize)
	}
	_, err = io.ReadFull(body, buffer)
	return err
}
