package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
)

// Snapshot is what a handler reported, to be recorded.
type Snapshot struct {
	// State is the state in one piece; nil keeps the recorded one.
	State []byte

	// Stream opens a state that is too large for State, from its start, as often as
	// a save needs it. It replaces State.
	Stream func() (io.ReadCloser, error)

	// At is how long the handler had run when it made the report.
	At time.Duration

	Version  int // the handler's number for the state's format
	Fraction float64
	Text     string
}

// HasState reports whether the snapshot holds a state.
func (s Snapshot) HasState() bool { return s.State != nil || s.Stream != nil }

// WithoutState returns the snapshot without its state: the recorded one is kept.
func (s Snapshot) WithoutState() Snapshot {
	s.State, s.Stream = nil, nil
	return s
}

// Held returns the snapshot with its stream opened, which its first reader gets: a report
// that comes before the save may take away what a later opening would find. The caller
// calls release after the save. Where the stream cannot be opened, the save returns why.
func (s Snapshot) Held() (held Snapshot, release func()) {
	if s.Stream == nil {
		return s, func() {}
	}
	opened, err := open(s.Stream, math.MaxInt64)
	if err != nil {
		return s, func() {}
	}
	var unread atomic.Pointer[stream]
	unread.Store(opened)
	reopen := s.Stream
	s.Stream = func() (io.ReadCloser, error) {
		if first := unread.Swap(nil); first != nil {
			return first.from, nil
		}
		return reopen()
	}
	return s, func() {
		if first := unread.Swap(nil); first != nil {
			first.close()
		}
	}
}

// prepared is a state that needs only one conditional write to be recorded.
type prepared struct {
	hash     string // empty for no state
	inUnits  string // the hash that it has, or would have, in blocks; empty if it is not needed
	size     int64
	blocks   int // as the record has them
	content  content
	previous Previous // the state that the content has behind it
}

// is reports whether a state that has this hash in a record is the same.
func (p prepared) is(hash string) bool { return hash != "" && (hash == p.hash || hash == p.inUnits) }

// prepare makes a snapshot's state ready to be recorded: of a large state it uploads
// the blocks that the record lacks.
func (c *Claim) prepare(ctx context.Context, s Snapshot) (prepared, error) {
	if !s.HasState() {
		return prepared{}, nil
	}
	if c.isReading() {
		return prepared{}, ErrReading
	}
	p, err := c.prepareAlone(ctx, s)
	if err != nil {
		return prepared{}, err
	}
	return c.withPrevious(ctx, p)
}

// prepareAlone makes a state ready without the one that it replaces.
func (c *Claim) prepareAlone(ctx context.Context, s Snapshot) (prepared, error) {
	if s.Stream == nil {
		return inOnePiece(s.State, c.hashUnit()), nil
	}
	stream, err := open(s.Stream, c.store.maxStream)
	if err != nil {
		return prepared{}, err
	}
	defer stream.close()
	head := make([]byte, c.store.unit)
	switch n, err := io.ReadFull(stream, head); {
	case err == io.EOF || err == io.ErrUnexpectedEOF: // the stream's own is in another error
		return inOnePiece(head[:n], c.hashUnit()), nil
	case err != nil:
		return prepared{}, err
	}
	return c.inBlocks(ctx, io.MultiReader(bytes.NewReader(head), stream))
}

// inOnePiece is a state that is hashed in units too, unless unit is 0.
func inOnePiece(state []byte, unit int) prepared {
	p := prepared{hash: hashOf(state), size: int64(len(state)), content: content{data: state}}
	if unit > 0 {
		p.inUnits = blocks.HashOf(state, unit)
	}
	return p
}

// inBlocks uploads the blocks of a state that the record lacks. First it creates the
// record if there is none, and lists its blocks if they are unknown.
func (c *Claim) inBlocks(ctx context.Context, state io.Reader) (prepared, error) {
	if c.record.ETag == "" {
		if err := c.write(ctx, unchanged); err != nil {
			return prepared{}, err
		}
	}
	if err := c.listBlocks(ctx); err != nil {
		return prepared{}, err
	}
	m, err := c.store.upload(ctx, c.delivery.ID, state, &c.blocks)
	if err != nil {
		return prepared{}, err
	}
	return prepared{hash: m.Hash, inUnits: m.Hash, size: m.Size, blocks: len(m.Blocks), content: content{blocks: m.Blocks}}, nil
}

// listBlocks lists the blocks of the record if they are unknown.
func (c *Claim) listBlocks(ctx context.Context) error {
	if c.blocks.Known() {
		return nil
	}
	set, err := blocks.List(ctx, c.store.blob(c.delivery.ID), transferTimeout)
	if err != nil {
		return fmt.Errorf("read blocks of job %s: %w", c.delivery.ID, err)
	}
	c.blocks = set
	return nil
}
