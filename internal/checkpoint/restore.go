package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

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
	unlock, err := c.lockSettled(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch r := c.record; {
	case !r.HasState():
		return nil, nil
	case r.StateBlocks > 0:
		open := func() (io.ReadCloser, error) { return c.open(ctx, r.StateHash) }
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

// readChunks is how many chunks of a large state one call reads.
const readChunks = 4

// ErrReading means that a state cannot be saved yet, because the recorded one is
// still being read. Saving becomes possible when the reader is at its end or
// closed.
var ErrReading = errors.New("the recorded state is still being read")

// ErrReplaced means that a state cannot be read any more. The run that it was
// restored for has saved a later one, or the record was removed and created again.
var ErrReplaced = errors.New("the recorded state was replaced")

// stateReader reads a large state, range by range. It continues across touches of
// the record, which change the ETag but not the body, and fails once another
// delivery acquires the record. Close may be called while another goroutine reads.
type stateReader struct {
	claim *Claim
	ctx   context.Context
	end   context.CancelFunc

	hash   string // that the whole state must have
	size   int64
	offset int64 // of the next range
	sum    chunkHash
	buffer []byte // read but not returned yet
	err    error  // that ended the reading; every later read returns it
}

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

// open returns the state of that hash, which is kept in blocks.
func (c *Claim) open(ctx context.Context, hash string) (io.ReadCloser, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	unlock, err := c.lockSettled(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c.record.StateHash != hash {
		return nil, ErrReplaced
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &stateReader{claim: c, ctx: ctx, end: cancel, hash: hash, size: c.record.StateSize, sum: newChunkHash()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers[r] = true
	return r, nil
}

// Read implements [io.Reader].
func (r *stateReader) Read(p []byte) (int, error) {
	if len(r.buffer) == 0 && r.err == nil {
		if r.err = r.fill(); r.err != nil {
			r.close()
		}
	}
	if len(r.buffer) == 0 {
		return 0, r.err
	}
	n := copy(p, r.buffer)
	r.buffer = r.buffer[n:]
	return n, nil
}

// Close ends the reading. Closing twice changes nothing.
func (r *stateReader) Close() error {
	r.close()
	return nil
}

func (r *stateReader) close() {
	r.end()
	r.claim.mu.Lock()
	defer r.claim.mu.Unlock()
	delete(r.claim.readers, r)
}

// fill reads the next range. It verifies the hash before it returns the last one: a
// decoder may never read beyond its own end.
func (r *stateReader) fill() error {
	if r.offset == r.size {
		return io.EOF
	}
	chunk := r.claim.store.chunk
	data, err := r.claim.readRange(r.ctx, r.hash, r.offset, min(int64(readChunks*chunk), r.size-r.offset))
	if err != nil {
		return fmt.Errorf("read state of job %s: %w", r.claim.delivery.ID, err)
	}
	for part := range slices.Chunk(data, chunk) {
		r.sum.add(part)
	}
	if r.offset += int64(len(data)); r.offset == r.size {
		if r.sum.String() != r.hash {
			return fmt.Errorf("%w: its %d bytes do not have the hash that was saved", ErrDamaged, r.size)
		}
		r.close() // the whole state is in memory
	}
	r.buffer = data
	return nil
}

// readRange reads a part of the body under the record's current ETag. If that has
// changed, one read of the record decides: if the record is still this claim's,
// reading continues under the new ETag.
func (c *Claim) readRange(ctx context.Context, hash string, offset, count int64) ([]byte, error) {
	for repeat := 0; ; repeat++ {
		if err := pause(ctx, repeat); err != nil {
			return nil, err
		}
		r := c.Record()
		if r.StateHash != hash {
			return nil, ErrReplaced
		}
		data, err := c.store.bodyRange(ctx, r, offset, count)
		if bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobNotFound) {
			err = c.relocate(ctx, r.ETag == c.Record().ETag)
			if err == nil {
				continue
			}
		}
		switch _, conflict := errors.AsType[*ConflictError](err); {
		case err == nil:
			return data, nil
		case conflict, errors.Is(err, ErrDamaged), refused(err) && !isForbidden(err):
			return nil, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
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

// isReading reports whether the recorded state is being read. A reader whose
// context has ended does not count, closed or not.
func (c *Claim) isReading() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.readers {
		if r.ctx.Err() == nil {
			return true
		}
	}
	return false
}

// CloseReaders closes all readers of the recorded state: the handler has returned.
func (c *Claim) CloseReaders() {
	c.mu.Lock()
	readers := slices.Collect(maps.Keys(c.readers))
	c.mu.Unlock()
	for _, r := range readers {
		r.close()
	}
}

// bodyRange reads a part of a record's body as it was when the record was read.
func (s *Store) bodyRange(ctx context.Context, r Record, offset, count int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	reply, err := s.blob(r.ID).DownloadStream(ctx, &blob.DownloadStreamOptions{
		Range: blob.HTTPRange{Offset: offset, Count: count}, AccessConditions: under(r.ETag),
	})
	if bloberror.HasCode(err, bloberror.InvalidRange) {
		return nil, fmt.Errorf("%w: its body is shorter than the %d bytes that were saved", ErrDamaged, r.StateSize)
	}
	if err != nil {
		return nil, err
	}
	body := reply.NewRetryReader(ctx, nil)
	defer func() { _ = body.Close() }()
	if value(reply.ContentLength) != count {
		return nil, fmt.Errorf("%w: its body is shorter than the %d bytes that were saved", ErrDamaged, r.StateSize)
	}
	data := make([]byte, count)
	_, err = io.ReadFull(body, data)
	return data, err
}
