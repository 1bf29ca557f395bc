package checkpoint

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
)

// content is the new body of a write. The zero value leaves the body as it is.
type content struct {
	data   []byte   // if not nil, the body in one piece
	blocks []string // if not nil, the body as these blocks, which must be there
}

// keeps reports whether the body stays as it is.
func (c content) keeps() bool { return c.data == nil && c.blocks == nil }

// blockSet tracks the blocks that the service has for a record, so that a claim
// sends only missing ones. Blocks are named after their content.
type blockSet struct {
	known     bool            // whether committed is complete
	committed map[string]bool // blocks of the body
	staged    map[string]bool // blocks sent since, which the next commit may name
}

// noBlocks is the set of a body that was written by Put Blob, which empties the
// committed list and discards staged blocks; also of a record that does not exist.
func noBlocks() blockSet { return blockSet{known: true} }

// has reports whether a block need not be sent.
func (b *blockSet) has(id string) bool { return b.committed[id] || b.staged[id] }

// update applies a write that took effect. A commit discards the staged blocks that
// it does not name.
func (b *blockSet) update(c content) {
	switch {
	case c.keeps():
	case c.blocks != nil:
		*b = blockSet{known: true, committed: setOf(c.blocks)}
	default:
		*b = noBlocks()
	}
}

// forget marks the set as unknown, because the body may have changed.
func (b *blockSet) forget() { *b = blockSet{} }

func (b *blockSet) addStaged(id string) {
	if b.staged == nil {
		b.staged = map[string]bool{}
	}
	b.staged[id] = true
}

func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// Sizes of a large state, in bytes.
const (
	// hashUnit is the length of the units in which a state is hashed. It is part of the
	// format and never changes, unlike the cut into blocks.
	hashUnit = 1 << 20

	// MaxStream is the largest state.
	MaxStream = 32 << 30
)

// Why a state cannot be saved. Nothing of it is recorded.
var (
	// ErrTooLarge means that the state is larger than [MaxStream].
	ErrTooLarge = errors.New("state is too large")

	// ErrUnreadable means that the handler's stream returned an error or panicked.
	ErrUnreadable = errors.New("state cannot be read")
)

// manifest describes a large state: its blocks in order, its hash and size.
type manifest struct {
	blocks []string
	hash   string // see stateHash
	size   int64  // bytes
}

// stateHash hashes a state that is kept in blocks: the SHA-256 of the SHA-256 hashes of
// its units, each of [hashUnit] bytes but the last. Ranges can be hashed side by side, and
// the hash says nothing about blocks: how a state is cut is its writer's business, and a
// reader of another version need not know.
type stateHash struct{ sum hash.Hash }

func newStateHash() stateHash { return stateHash{sha256.New()} }

// add adds the hash of the next unit.
func (h stateHash) add(unit [sha256.Size]byte) { _, _ = h.sum.Write(unit[:]) } // a hash never returns an error

func (h stateHash) String() string { return hex.EncodeToString(h.sum.Sum(nil)) }

// blockID returns the id of the block of one chunk: the chunk's hash in base64. All ids of
// a blob have the same length, as the service requires.
func blockID(chunk [sha256.Size]byte) string { return base64.StdEncoding.EncodeToString(chunk[:]) }

// groupID returns the id of the block of a group: the hash of its chunks' hashes. It is
// another hash function than that of chunks, so that no chunk can have a group's id.
func groupID(chunks []byte) string { return blockID(sha512.Sum512_256(chunks)) }

// committedBlocks returns the blocks of a record's body.
func (s *Store) committedBlocks(ctx context.Context, id string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	reply, err := s.blob(id).GetBlockList(ctx, blockblob.BlockListTypeCommitted, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read blocks of job %s: %w", id, err)
	}
	committed := make(map[string]bool, len(reply.CommittedBlocks))
	for _, block := range reply.CommittedBlocks {
		committed[value(block.Name)] = true
	}
	return committed, nil
}
