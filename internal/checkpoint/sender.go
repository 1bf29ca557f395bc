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

	blocks       blocks.Set
	base         *base                // the recorded state, if later ones can be compared with it; or nil
	restored     atomic.Pointer[base] // the state that was read to its end; any goroutine
	uncommitted  bool                 // the service refused a create: the blob has staged blocks but no record
	beganInUnits bool                 // the record had a state in blocks when the claim began
	began        blocks.Key           // of the record then

	// key is the one of all states that this claim stores in blocks, once keyed says that
	// it is chosen. A job keeps its key, and stays without one: with another hash a repeated
	// state would count as progress.
	key   blocks.Key
	keyed bool
	mixed func(ctx context.Context, version int) bool // see [Claim.SetMixed]

	layouts *bool // whether records with a layout may be written; nil before the first question
}

// prepare makes a state ready to be recorded in place of the state with the hash recorded. It
// uploads the blocks of a large state that the record lacks. For that it
// first creates the record if there is none. If last, the save ends the claim.
func (s *sender) prepare(ctx context.Context, state Snapshot, recorded string, last bool,
	create func(context.Context) error) (p prepared, err error) {
	if state.Stream == nil {
		return inOnePiece(state.State, s.hashUnit(), s.began), nil
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
		return inOnePiece(head[:n], s.hashUnit(), s.began), false, nil
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
	s.chooseKey(ctx)
	to := s.store.target(s.id, s.key)
	to.Last, to.MayPatch = last, func() bool { return s.mayPatch(ctx) }
	return s.store.upload(ctx, s.id, to, state, &s.blocks, known, from)
}

// mayPatch reports whether the body may have a layout. While a worker lives that would leave such a
// record alone, the claim writes none.
func (s *sender) mayPatch(ctx context.Context) bool {
	if s.layouts == nil {
		s.layouts = new(s.mixed == nil || !s.mixed(ctx, layoutVersion))
	}
	return *s.layouts
}

// chooseKey makes the key of the job before its first state in blocks. While a worker lives
// that would leave such a record alone, the job gets no key.
func (s *sender) chooseKey(ctx context.Context) {
	if !s.keyed && (s.mixed == nil || !s.mixed(ctx, keyVersion)) {
		s.key = blocks.NewKey()
	}
	s.keyed = true
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
	m, err := s.store.upload(ctx, s.id, s.store.target(s.id, s.key), bytes.NewReader(body.data), &s.blocks, blocks.Base{}, 0)
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

// hashUnit is the unit in which a state of one piece is hashed too, since the record may
// have its hash in that form; 0 if it has not.
func (s *sender) hashUnit() int {
	if s.beganInUnits {
		return s.store.unit
	}
	return 0
}
