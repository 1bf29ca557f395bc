package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// ErrDamaged says that the state in a record is not the one that was saved.
var ErrDamaged = errors.New("recorded state is damaged")

// Restore returns the recorded state, or nil when there is none. A state that is
// kept in blocks comes as a stream that is read under ctx, see [Claim.OpenState]. The
// error wraps [ErrDamaged] when the state is not what was saved, and is a
// [*ConflictError] when the record was claimed anew.
func (c *Claim) Restore(ctx context.Context) (*Snapshot, error) {
	leave, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if _, err := c.settle(ctx); err != nil {
		return nil, err
	}
	switch r := c.record; {
	case !r.HasState():
		return nil, nil
	case r.StateBlocks > 0:
		open := func() (io.ReadCloser, error) { return c.open(ctx, r.StateHash) }
		return &Snapshot{Stream: open, Version: r.StateVersion, Fraction: r.Fraction, Text: r.Text}, nil
	}
	state, err := c.store.body(ctx, c.record)
	if bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobNotFound) {
		if err := c.displaced(ctx); err != nil {
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
	return &Snapshot{State: state, Version: r.StateVersion, Fraction: r.Fraction, Text: r.Text}, nil
}

// displaced decides by one read what a refused read of the state means. It
// returns nil when the record is still this claim's, under another ETag. A record
// that was removed is created again, without the state that went with it: the
// job starts afresh.
func (c *Claim) displaced(ctx context.Context) error {
	found, err := c.store.find(ctx, c.delivery.ID)
	switch {
	case err != nil:
		return err
	case found == nil:
		c.recreate()
		c.startAfresh()
		return c.write(ctx, unchanged)
	case found.Token == c.token:
		c.follow(*found)
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
