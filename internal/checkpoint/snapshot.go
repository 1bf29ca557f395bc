package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"
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
	stream, err := s.open()
	if err != nil {
		return prepared{}, err
	}
	defer closeStream(stream)
	head := make([]byte, c.store.unit)
	switch n, ended, err := readChunk(stream, head); {
	case err != nil:
		return prepared{}, err
	case ended && n < len(head):
		return inOnePiece(head[:n], c.hashUnit()), nil
	}
	return c.inBlocks(ctx, io.MultiReader(bytes.NewReader(head), stream))
}

// open opens the stream, which is the handler's code.
func (s Snapshot) open() (stream io.ReadCloser, err error) {
	defer recoverPanic(&err)
	switch stream, err = s.Stream(); {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	case stream == nil:
		return nil, fmt.Errorf("%w: there is no stream", ErrUnreadable)
	}
	return stream, nil
}

// readChunk fills the buffer, unless the state ends first. Only io.EOF itself is the
// end of a state. io.ReadFull could not tell it from the io.ErrUnexpectedEOF of a
// stream that was cut off.
func readChunk(state io.Reader, buffer []byte) (n int, ended bool, err error) {
	defer recoverPanic(&err)
	for n < len(buffer) {
		read, err := state.Read(buffer[n:])
		n += read
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
	}
	return n, false, nil
}

func closeStream(stream io.Closer) {
	var panicked error
	defer recoverPanic(&panicked) // the state was read completely all the same
	_ = stream.Close()
}

// recoverPanic turns a panic of the handler's code into an error, since the worker
// runs other jobs too.
func recoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: it panicked: %v", ErrUnreadable, p)
	}
}

// inOnePiece is a state that is hashed in units too, unless unit is 0.
func inOnePiece(state []byte, unit int) prepared {
	p := prepared{hash: hashOf(state), size: int64(len(state)), content: content{data: state}}
	if unit > 0 {
		p.inUnits = hashInUnits(state, unit)
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
	m, err := c.store.stage(ctx, c.delivery.ID, state, &c.blocks)
	if err != nil {
		return prepared{}, err
	}
	return prepared{hash: m.hash, inUnits: m.hash, size: m.size, blocks: len(m.blocks), content: content{blocks: m.blocks}}, nil
}

// listBlocks lists the blocks of the record if they are unknown.
func (c *Claim) listBlocks(ctx context.Context) error {
	if c.blocks.known {
		return nil
	}
	committed, err := c.store.committedBlocks(ctx, c.delivery.ID)
	if err != nil {
		return err
	}
	c.blocks = blockSet{known: true, order: committed, committed: setOf(committed)}
	return nil
}
