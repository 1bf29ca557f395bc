package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
)

// sender sends states. It makes them ready to be recorded by one write, and knows what of
// them the record has. The lock of writes guards its fields.
type sender struct {
	store *Store
	id    string // of the job

	blocks      blocks.Set
	base        *base                // the recorded state, if later ones can be compared with it; or nil
	restored    atomic.Pointer[base] // the state that was read to its end; any goroutine
	uncommitted bool                 // the service refused a create: the blob has staged blocks but no record

	// key is the one of all states of the job, once keyed says that it is chosen: with
	// another one a repeated state would count as progress.
	key   blocks.Key
	keyed bool
}

// prepare makes a state ready to be recorded in place of the state with the hash recorded. It
// uploads the blocks of a large state that the record lacks. For that it
// first creates the record if there is none. If last, the save ends the claim.
func (s *sender) prepare(ctx context.Context, state Snapshot, recorded string, last bool,
	create func(context.Context) error) (p prepared, err error) {
	if state.Stream == nil {
		return s.inOnePiece(state.State), nil
	}
	p, wrong, err := s.prepareStream(ctx, state, recorded, last, last, create)
	if err == nil && wrong && last { // skipped bytes may have changed too
		p, _, err = s.prepareStream(ctx, state, recorded, false, last, create)
	}
	return p, err
}

// prepareStream is prepare for a stream. wrong reports that the stream has changed where it said
// that it had not.
func (s *sender) prepareStream(ctx context.Context, state Snapshot, recorded string, skip, last bool,
	create func(context.Context) error) (p prepared, wrong bool, err error) {
	stream, err := open(state.Stream, s.store.maxStream)
	if err != nil {
		return prepared{}, false, err
	}
	defer stream.close()
	head := make([]byte, s.store.unit)
	switch n, err := io.ReadFull(stream, head); {
	case err == io.EOF || err == io.ErrUnexpectedEOF: // the stream's own is in another error
		return s.inOnePiece(head[:n]), false, nil
	case err != nil:
		return prepared{}, false, err
	}
	if err := create(ctx); err != nil {
		return prepared{}, false, err
	}
	return s.send(ctx, head, stream, recorded, skip, last)
}

// upload uploads the blocks of a state that the record lacks. First it lists the blocks
// of the record if they are unknown. Bytes of the base behind an offset are not read.
func (s *sender) upload(ctx context.Context, state io.Reader, known blocks.Base, from int64, last bool) (blocks.Manifest, error) {
	if err := s.listBlocks(ctx); err != nil {
		return blocks.Manifest{}, err
	}
	to := s.store.target(s.id, s.stateKey())
	to.Last = last
	return s.store.upload(ctx, s.id, to, state, &s.blocks, known, from)
}

// stateKey returns the key of the job's states. A job without a state gets a new one.
func (s *sender) stateKey() blocks.Key {
	if !s.keyed {
		s.key, s.keyed = blocks.NewKey(), true
	}
	return s.key
}

// inOnePiece is a state that one write sends.
func (s *sender) inOnePiece(state []byte) prepared {
	key := s.stateKey()
	return prepared{
		hash: blocks.HashOf(state, s.store.unit, key), key: key, size: int64(len(state)), content: content{data: state},
	}
}

// listBlocks lists the blocks of the record if they are unknown.
func (s *sender) listBlocks(ctx context.Context) error {
	if s.blocks.Known() {
		return nil
	}
	set, err := blocks.List(ctx, s.store.blob(s.id), transferTimeout)
	if err != nil {
		return fmt.Errorf("read blocks of job %s: %w", s.id, err)
	}
	s.blocks = set
	return nil
}

// asBlockList returns the content as a block list if the blob has staged blocks but
// no record, as after the record's removal. The service then refuses a Put Blob
// until it discards the blocks a week later, but accepts a Put Block List.
func (s *sender) asBlockList(ctx context.Context, body content, exists bool) (content, error) {
	if !s.uncommitted || exists || body.blocks != nil {
		return body, nil
	}
	if len(body.data) == 0 {
		return content{blocks: []string{}}, nil
	}
	m, err := s.store.upload(ctx, s.id, s.store.target(s.id, s.stateKey()), bytes.NewReader(body.data), &s.blocks, blocks.Base{}, 0)
	return content{blocks: m.Blocks}, err
}

// recorded updates the known facts of the body after a write that took effect.
func (s *sender) recorded(body content) {
	switch {
	case body.keeps():
		if body.base != nil { // the same state, compared again
			s.base = body.base
		}
		return
	case body.blocks != nil:
		s.blocks = blocks.Committed(body.blocks)
	default:
		s.blocks = blocks.None()
	}
	s.base = body.base
	s.restored.Store(nil)
}

// forget forgets the blocks of the record, which are then listed before they are needed.
func (s *sender) forget() { s.blocks = blocks.Set{} }

// removed updates the known facts of the body after the record was removed.
func (s *sender) removed() {
	s.blocks, s.base = blocks.None(), nil
	s.restored.Store(nil)
}
