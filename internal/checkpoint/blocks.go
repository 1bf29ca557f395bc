package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/zeebo/xxh3"
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
	order     []string        // blocks of the body, as they stand in it
	committed map[string]bool // the same as a set
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
		*b = blockSet{known: true, order: c.blocks, committed: setOf(c.blocks)}
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

// Ids of blocks: the XXH3 of 128 bits of the content, its length, and what the content is.
// All ids of a blob have the same length, as the service requires; these are as long as
// the SHA-256 hashes that earlier versions use, and end otherwise.
const (
	idLength  = 32
	chunkKind = "chunk-01"
	groupKind = "group-01"
)

// namer makes the ids of the blocks of one job. XXH3 is not a cryptographic hash. It tells
// apart what differs by chance, at a tenth of the time. Content that somebody made to have
// the id of other content, for which they need the job's id, would not pass for it: the
// record has the SHA-256 of the whole, which every reader checks.
type namer struct{ seed uint64 }

func newNamer(job string) namer {
	sum := sha256.Sum256([]byte(job))
	return namer{binary.BigEndian.Uint64(sum[:])}
}

// chunk returns the id of the block of one chunk.
func (n namer) chunk(data []byte) string { return n.name(data, len(data), chunkKind) }

// group returns the id of the block of a group of so many bytes, whose chunks have these
// ids.
func (n namer) group(chunks []string, length int) string {
	return n.name([]byte(strings.Join(chunks, "")), length, groupKind)
}

func (n namer) name(hashed []byte, length int, kind string) string {
	sum := xxh3.Hash128Seed(hashed, n.seed).Bytes()
	id := append(make([]byte, 0, idLength), sum[:]...)
	id = binary.BigEndian.AppendUint64(id, uint64(length))
	return base64.StdEncoding.EncodeToString(append(id, kind...))
}

// lengthOf returns how many bytes the blocks with these ids have.
func lengthOf(ids []string) (bytes int64) {
	for _, id := range ids {
		if content, err := base64.StdEncoding.DecodeString(id); err == nil && len(content) == idLength {
			bytes += int64(binary.BigEndian.Uint64(content[idLength-16:]))
		}
	}
	return bytes
}

// committedBlocks returns the blocks of a record's body, in their order.
func (s *Store) committedBlocks(ctx context.Context, id string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	reply, err := s.blob(id).GetBlockList(ctx, blockblob.BlockListTypeCommitted, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read blocks of job %s: %w", id, err)
	}
	committed := make([]string, 0, len(reply.CommittedBlocks))
	for _, block := range reply.CommittedBlocks {
		committed = append(committed, value(block.Name))
	}
	return committed, nil
}
