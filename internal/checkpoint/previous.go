package checkpoint

import (
	"bytes"
	"context"
	"io"
	"slices"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
)

// Previous is the state before the recorded one, which the body has behind it where the
// job's kind keeps it ([Claim.KeepPrevious]).
//
//	body: │ recorded state: StateSize bytes, StateBlocks blocks │ previous: Size, Blocks │
//
// Its blocks are in the record already, so that a save neither reads nor sends them. Two
// states in one piece are one Put Blob, and Blocks is 0. A reader that does not know the
// previous state reads StateSize bytes: StateBlocks is therefore never 0 here, and
// StateHash that of a state in blocks, also where both states are in one piece.
type Previous struct {
	Hash    string // like StateHash of a state in blocks
	Size    int64  // bytes
	Blocks  int
	Version int // the handler's number for its format

	// Of is the begin of the hash of the recorded state that it stands behind. A version
	// that does not know the keys of a previous state leaves them when it records another
	// state: then Of is that of no state.
	Of string
}

// maxBlocks is how many blocks the service takes for one blob.
const maxBlocks = 50_000

// signature is what [Previous.Of] has of a hash.
func signature(hash string) string { return hash[:min(16, len(hash))] }

// HasPrevious reports whether the state before the recorded one is kept too.
func (r Record) HasPrevious() bool {
	return r.HasState() && r.Previous.Hash != "" && r.Previous.Of == signature(r.StateHash)
}

// isJoined reports whether the body is the recorded state and the one before it, both in
// one piece.
func (r Record) isJoined() bool {
	return r.HasPrevious() && r.Previous.Blocks == 0 && r.StateSize <= maxBody && r.Previous.Size <= maxBody
}

// KeepPrevious makes every later save keep the state that it replaces as the one before
// it. The claim holds a state that is in one piece in memory for that.
func (c *Claim) KeepPrevious(ctx context.Context) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keeps = true
	return nil
}

// StepBack returns the state before the recorded one, or nil if there is none. From then
// on the recorded one counts as unusable: the next save replaces it, and keeps the one
// before it. The error is one of [Claim.Restore].
func (c *Claim) StepBack(ctx context.Context) (*Snapshot, error) {
	unlock, err := c.lockSettled(ctx)
	if err != nil {
		return nil, err
	}
	r := c.record
	if !r.HasPrevious() {
		unlock()
		return nil, nil
	}
	if !c.stepped {
		c.stepsBack++
	}
	c.stepped = true
	c.mu.Lock()
	c.steppedTo = r.Previous.Hash
	c.mu.Unlock()
	unlock()
	part := stored{of: r.StateHash, hash: r.Previous.Hash, from: r.StateSize, size: r.Previous.Size}
	s := &Snapshot{Version: r.Previous.Version, Stream: func() (io.ReadCloser, error) { return c.open(ctx, part) }}
	if !r.isJoined() {
		return s, nil
	}
	return c.inMemory(ctx, s)
}

// inMemory reads a state of one piece out of a body that holds two, and keeps it for the
// saves to come.
func (c *Claim) inMemory(ctx context.Context, s *Snapshot) (*Snapshot, error) {
	stream, err := s.Stream()
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	data, err := io.ReadAll(stream)
	if err != nil {
		return nil, err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c.hold(data)
	s.State, s.Stream = data, nil
	return s, nil
}

// hold keeps a state of one piece that a later save may have to send again.
func (c *Claim) hold(data []byte) {
	if c.keeps {
		c.held = data
	}
}

// keepHeld updates what the claim holds after a write that took effect.
func (c *Claim) keepHeld(written Record, body content) {
	if body.keeps() {
		return
	}
	c.held, c.stepped = nil, false
	if body.data != nil && int64(len(body.data)) >= written.StateSize {
		c.hold(body.data[:written.StateSize])
	}
}

// older is a state that the next save keeps behind the new one.
type older struct {
	hash    string // as of a state in blocks
	size    int64
	version int
	blocks  []string // of the record, or
	data    []byte   // in one piece
}

// withPrevious adds the state that a save replaces to the one that it records. It adds
// none that the claim cannot name or does not hold, since a save must not fail for it.
func (c *Claim) withPrevious(ctx context.Context, p prepared) (prepared, error) {
	if p.hash == "" || !c.keeps || p.is(c.record.StateHash) {
		return p, nil
	}
	before, ok, err := c.replaced(ctx, p)
	switch {
	case err != nil || !ok:
		return p, err
	case p.content.data != nil && before.blocks == nil:
		p.content.data = slices.Concat(p.content.data, before.data)
		p.hash, p.blocks = p.inUnits, 1
		p.previous = before.as(p.hash, 0)
		return p, nil
	case p.size == 0 || before.size == 0:
		return p, nil // nothing to put into a block
	}
	alone := p
	if p.content.data != nil {
		m, err := c.inBlocksToo(ctx, p.content.data)
		if err != nil {
			return prepared{}, err
		}
		p.hash, p.content = m.Hash, content{blocks: m.Blocks}
	}
	if before.blocks == nil {
		m, err := c.inBlocksToo(ctx, before.data)
		if err != nil {
			return prepared{}, err
		}
		before.blocks = m.Blocks
	}
	p.blocks = len(p.content.blocks)
	if p.blocks+len(before.blocks) > maxBlocks {
		return alone, nil
	}
	p.content.blocks = slices.Concat(p.content.blocks, before.blocks)
	p.previous = before.as(p.hash, len(before.blocks))
	return p, nil
}

func (o older) as(of string, count int) Previous {
	return Previous{Hash: o.hash, Size: o.size, Blocks: count, Version: o.version, Of: signature(of)}
}

// replaced returns the state that is the one before p once p is recorded: the recorded
// one, or if that is unusable the one before it.
func (c *Claim) replaced(ctx context.Context, p prepared) (before older, ok bool, err error) {
	r := c.record
	hash, size, version, from, count := r.StateHash, r.StateSize, r.StateVersion, 0, r.StateBlocks
	inBlocks := count > 0 && !r.isJoined()
	if c.stepped {
		hash, size, version, from, count = r.Previous.Hash, r.Previous.Size, r.Previous.Version, r.StateBlocks, r.Previous.Blocks
	}
	if !r.HasState() || c.stepped && !r.HasPrevious() || p.is(hash) {
		return older{}, false, nil
	}
	if !inBlocks {
		units := blocks.HashOf(c.held, c.store.unit)
		ok := c.held != nil && int64(len(c.held)) == size && (hash == units || hash == hashOf(c.held))
		return older{hash: units, size: size, version: version, data: c.held}, ok, nil
	}
	if err := c.listBlocks(ctx); err != nil {
		return older{}, false, err
	}
	all := r.StateBlocks
	if r.HasPrevious() {
		all += r.Previous.Blocks
	}
	if len(c.blocks.Order()) != all {
		return older{}, false, nil
	}
	return older{hash: hash, size: size, version: version, blocks: c.blocks.Order()[from : from+count]}, true, nil
}

// inBlocksToo uploads the blocks of a state in one piece that the record lacks.
func (c *Claim) inBlocksToo(ctx context.Context, data []byte) (blocks.Manifest, error) {
	if err := c.listBlocks(ctx); err != nil {
		return blocks.Manifest{}, err
	}
	return c.store.upload(ctx, c.delivery.ID, bytes.NewReader(data), &c.blocks)
}

// stepsAfter returns the steps back for the next write of a record that has those before.
func (c *Claim) stepsAfter(before int) int { return max(before, c.stepsBack) }
