package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// readSize is how much of a large state one call reads, in bytes: a number of
// whole chunks.
const readSize = 4 * chunkSize

// ErrReading says that a state cannot be saved yet, because the one before it is
// still being read. It becomes possible when the reader is at its end or closed.
var ErrReading = errors.New("the recorded state is still being read")

// stateReader reads a large state, range by range. It survives touches of the
// record, which change the ETag but not the body; whoever claims the record ends
// it. Close may be called while another goroutine reads.
type stateReader struct {
	claim *Claim
	ctx   context.Context
	end   context.CancelFunc

	hash   string // what the state must amount to
	size   int64
	offset int64 // of the next range
	sum    chunkHash
	buffer []byte // what was read and not handed out yet
}

// Open returns the recorded state as a stream, or nil when there is none. Until
// it is read to its end or closed, saves return [ErrReading]; touches do not.
// A read returns an error that wraps [ErrDamaged] at the end of a state that is
// not what was saved, and a [*ConflictError] once the record was claimed anew.
func (c *Claim) Open(ctx context.Context) (io.ReadCloser, error) {
	leave, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if _, err := c.settle(ctx); err != nil {
		return nil, err
	}
	if !c.record.HasState() {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &stateReader{
		claim: c, ctx: ctx, end: cancel,
		hash: c.record.StateHash, size: c.record.StateSize, sum: newChunkHash(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers[r] = true
	return r, nil
}

// Read implements [io.Reader].
func (r *stateReader) Read(p []byte) (int, error) {
	if len(r.buffer) == 0 {
		if err := r.fill(); err != nil {
			r.close()
			return 0, err
		}
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

// fill reads the next range. At the end it checks what was read.
func (r *stateReader) fill() error {
	if err := r.ctx.Err(); err != nil {
		return fmt.Errorf("read state of job %s: %w", r.claim.delivery.ID, context.Cause(r.ctx))
	}
	if r.offset == r.size {
		if r.sum.String() != r.hash {
			return fmt.Errorf("%w: its %d bytes do not have the hash that was saved", ErrDamaged, r.size)
		}
		return io.EOF
	}
	data, err := r.claim.readRange(r.ctx, r.offset, min(readSize, r.size-r.offset))
	if err != nil {
		return err
	}
	for rest := data; len(rest) > 0; rest = rest[min(chunkSize, len(rest)):] {
		r.sum.add(rest[:min(chunkSize, len(rest))])
	}
	r.offset += int64(len(data))
	r.buffer = data
	return nil
}

// readRange reads a part of the body under the record's present ETag. When that
// has changed one read of the record decides: ours, go on under the new one.
func (c *Claim) readRange(ctx context.Context, offset, count int64) ([]byte, error) {
	for {
		r := c.Record()
		data, err := c.store.bodyRange(ctx, r, offset, count)
		if !bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobNotFound) {
			return data, err
		}
		if err := c.relocate(ctx, r.ETag == c.Record().ETag); err != nil {
			return nil, err
		}
	}
}

// relocate finds out under which ETag the state can be read on. A touch of this
// very claim explains a refusal by itself; otherwise the record is asked.
func (c *Claim) relocate(ctx context.Context, ask bool) error {
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := c.settle(ctx); err != nil || !ask {
		return err
	}
	found, err := c.store.find(ctx, c.delivery.ID)
	switch {
	case err != nil:
		return err
	case found == nil:
		return fmt.Errorf("%w: its record was removed", ErrDamaged)
	case found.Token != c.token:
		return c.conflict(OnConflict(found, c.delivery, Attempt{Token: c.token, Write: c.number}), *found)
	case found.ETag == c.record.ETag:
		return nil // the refusal was about an older one
	}
	c.set(*found)
	return nil
}

func (c *Claim) isReading() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.readers) > 0
}

// CloseReaders ends all reading of the recorded state: whoever read it is done,
// or given up.
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
	if err != nil {
		return nil, fmt.Errorf("read state of job %s: %w", r.ID, err)
	}
	body := reply.NewRetryReader(ctx, nil)
	defer func() { _ = body.Close() }()
	data := make([]byte, count)
	if _, err := io.ReadFull(body, data); err != nil {
		return nil, fmt.Errorf("read state of job %s: %w", r.ID, err)
	}
	return data, nil
}
