package checkpoint

import (
	"bytes"
	"cmp"
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
// Its blocks are in the record already, so that a save neither reads nor sends them: a
// folder of 1 GiB with 10 MiB changed takes 25 calls either way, and 12.66 MB instead of
// 12.63. Storage holds both states, and the previous one is only fetched when needed. Two
// states in one piece are one Put Blob, and Blocks is 0. A reader that does not know the
// previous state reads StateSize bytes: StateBlocks is therefore never 0 here, and
// StateHash is the hash of a state in blocks, also where both states are in one piece.
type Previous struct {
	Hash    string // like StateHash of a state in blocks
	Size    int64  // bytes
	Blocks  int
	Version int // the handler's number for its format

	// Outputs is the hash of the list of the job's outputs as it was with this state;
	// [NoOutputs] if there were none, empty if that is not known, since an older version
	// recorded the state.
	Outputs string

	// Of is the begin of the hash of the recorded state that it stands behind. A version
	// that does not know the keys of a previous state leaves them when it records another
	// state: then Of matches no state.
	Of string
}

// NoOutputs stands for a list of outputs without files.
const NoOutputs = "none"

// maxBlocks is how many blocks the service takes for one blob.
const maxBlocks = 50_000

// signature is the part of a hash in [Previous.Of].
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

// stepBack is [Claim.StepBack].
func (rs *restorer) stepBack(ctx context.Context) (*Snapshot, error) {
	unlock, err := rs.owned.lockSettled(ctx)
	if err != nil {
		return nil, err
	}
	r := rs.owned.record
	if !r.HasPrevious() {
		unlock()
		return nil, nil
	}
	rs.sender.stepBack()
	rs.baseline.stepTo(r.Previous.Hash)
	unlock()
	part := stored{of: r.StateHash, hash: r.Previous.Hash, key: r.StateKey, from: r.StateSize, size: r.Previous.Size}
	s := &Snapshot{Version: r.Previous.Version, Stream: func() (io.ReadCloser, error) { return rs.open(ctx, part) }}
	if !r.isJoined() {
		return s, nil
	}
	return rs.inMemory(ctx, s)
}

// inMemory reads a state of one piece out of a body that holds two, and keeps it for the
// saves to come.
func (rs *restorer) inMemory(ctx context.Context, s *Snapshot) (*Snapshot, error) {
	stream, err := s.Stream()
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	data, err := io.ReadAll(stream)
	if err != nil {
		return nil, err
	}
	unlock, err := rs.owned.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	rs.sender.hold(data)
	s.State, s.Stream = data, nil
	return s, nil
}

// stepBack records that the recorded state is unusable.
func (s *sender) stepBack() {
	if !s.stepped {
		s.stepsBack++
	}
	s.stepped = true
}

// hold keeps a state of one piece that a later save may have to send again.
func (s *sender) hold(data []byte) {
	if s.keeps.Load() {
		s.held = data
	}
}

// older is a state that the next save keeps behind the new one.
type older struct {
	hash    string // as of a state in blocks; empty for one in one piece
	size    int64
	version int
	outputs string   // as [Previous] has them
	blocks  []string // of the record, or
	data    []byte   // in one piece
}

// withPrevious adds the state that a save replaces to the new state. It adds none that
// the claim cannot name or does not hold, since a save must not fail for it.
func (s *sender) withPrevious(ctx context.Context, r Record, p prepared) (prepared, error) {
	if !s.keeps.Load() || p.is(r.StateHash) {
		return p, nil
	}
	before, ok, err := s.replaced(ctx, r, p)
	switch {
	case err != nil || !ok:
		return p, err
	case p.content.data != nil && before.blocks == nil:
		p.content.data = slices.Concat(p.content.data, before.data)
		p.hash, p.blocks, p.key = p.inUnits, 1, s.began
		before.hash = blocks.HashOf(before.data, s.store.unit, s.began)
		p.previous = before.as(p.hash, 0)
		return p, nil
	case p.size == 0 || before.size == 0:
		return p, nil // nothing to put into a block
	}
	alone := p
	if p.content.data != nil {
		m, err := s.upload(ctx, bytes.NewReader(p.content.data), blocks.Base{}, 0, false)
		if err != nil {
			return prepared{}, err
		}
		p.hash, p.key, p.content = m.Hash, s.key, content{blocks: m.Blocks}
	}
	if before.blocks == nil {
		m, err := s.upload(ctx, bytes.NewReader(before.data), blocks.Base{}, 0, false)
		if err != nil {
			return prepared{}, err
		}
		before.hash, before.blocks = m.Hash, m.Blocks
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
	return Previous{Hash: o.hash, Size: o.size, Blocks: count, Version: o.version, Outputs: o.outputs, Of: signature(of)}
}

// replaced returns the state of record r that is the one before p once p is recorded: the
// recorded one, or if that is unusable the one before it.
func (s *sender) replaced(ctx context.Context, r Record, p prepared) (before older, ok bool, err error) {
	hash, size, version, from, count := r.StateHash, r.StateSize, r.StateVersion, 0, r.StateBlocks
	inBlocks, outputs := count > 0 && !r.isJoined(), cmp.Or(r.Outputs.Hash, NoOutputs)
	if s.stepped {
		hash, size, version, from, count = r.Previous.Hash, r.Previous.Size, r.Previous.Version, r.StateBlocks, r.Previous.Blocks
		outputs = r.Previous.Outputs
	}
	if !r.HasState() || r.Layout.Size > 0 || s.stepped && !r.HasPrevious() || p.is(hash) {
		return older{}, false, nil
	}
	if !inBlocks {
		ok := s.held != nil && int64(len(s.held)) == size &&
			(hash == hashOf(s.held) || hash == blocks.HashOf(s.held, s.store.unit, r.StateKey))
		return older{size: size, version: version, outputs: outputs, data: s.held}, ok, nil
	}
	if err := s.listBlocks(ctx); err != nil {
		return older{}, false, err
	}
	all := r.StateBlocks
	if r.HasPrevious() {
		all += r.Previous.Blocks
	}
	if len(s.blocks.Order()) != all {
		return older{}, false, nil
	}
	return older{hash: hash, size: size, version: version, outputs: outputs, blocks: s.blocks.Order()[from : from+count]}, true, nil
}

// stepsAfter returns the steps back for the next write of a record that has those before.
func (s *sender) stepsAfter(before int) int { return max(before, s.stepsBack) }
