package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// Snapshot is what a handler reported, as it goes into a record.
type Snapshot struct {
	// State is the state in one piece; nil leaves the recorded one as it is.
	State []byte

	// Stream opens a state that is too large for that, from its start, as
	// often as a save needs it. It comes in place of State.
	Stream func() (io.ReadCloser, error)

	Version  int // the handler's number for the state's format
	Fraction float64
	Text     string
}

// HasState reports whether the snapshot holds a state.
func (s Snapshot) HasState() bool { return s.State != nil || s.Stream != nil }

// WithoutState returns the snapshot without its state, which leaves the recorded
// one as it is.
func (s Snapshot) WithoutState() Snapshot {
	s.State, s.Stream = nil, nil
	return s
}

// prepared is a state that is ready to be written: what is left to do is one
// conditional write.
type prepared struct {
	hash    string // empty for no state
	size    int64
	content content
}

// prepare makes a snapshot's state ready: of a large one it sends the blocks
// that the record lacks.
func (c *Claim) prepare(ctx context.Context, s Snapshot) (prepared, error) {
	if !s.HasState() {
		return prepared{}, nil
	}
	if c.isReading() {
		return prepared{}, ErrReading
	}
	if s.Stream == nil {
		return inOnePiece(s.State), nil
	}
	stream, err := s.Stream()
	if err != nil {
		return prepared{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	defer func() { _ = stream.Close() }()
	head := make([]byte, chunkSize)
	switch n, err := io.ReadFull(stream, head); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return inOnePiece(head[:n]), nil
	case err != nil:
		return prepared{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return c.inBlocks(ctx, io.MultiReader(bytes.NewReader(head), stream))
}

func inOnePiece(state []byte) prepared {
	return prepared{hash: hashOf(state), size: int64(len(state)), content: content{data: state}}
}

// inBlocks sends what the record lacks of a state, which needs a record to be
// there, and knowledge of its blocks.
func (c *Claim) inBlocks(ctx context.Context, state io.Reader) (prepared, error) {
	if _, err := c.settle(ctx); err != nil {
		return prepared{}, err
	}
	if c.record.ETag == "" {
		if err := c.write(ctx, unchanged); err != nil {
			return prepared{}, err
		}
	}
	if !c.blocks.known {
		committed, err := c.store.committedBlocks(ctx, c.delivery.ID)
		if err != nil {
			return prepared{}, err
		}
		c.blocks = blockSet{known: true, committed: committed}
	}
	m, err := c.store.stage(ctx, c.delivery.ID, state, &c.blocks)
	if err != nil {
		return prepared{}, err
	}
	return prepared{hash: m.hash, size: m.size, content: content{blocks: m.blocks}}, nil
}
