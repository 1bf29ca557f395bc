package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"golang.org/x/sync/errgroup"
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

// Sizes of a large state.
const (
	// chunkSize is the length of a block, in bytes. A change within a chunk sends
	// that chunk again. A blob has at most 50,000 blocks.
	chunkSize = 1 << 20

	// stageParallel is how many blocks of one state are sent at once. A save takes
	// stageParallel × chunkSize bytes of memory.
	stageParallel = 8

	// MaxStream is the largest state, in bytes.
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

// stateHash hashes a state that is kept in blocks: the SHA-256 of its chunks'
// SHA-256 hashes, so that no byte is hashed twice.
type stateHash struct{ sum hash.Hash }

func newStateHash() stateHash { return stateHash{sha256.New()} }

// add adds the hash of the next chunk.
func (h stateHash) add(chunk [sha256.Size]byte) { _, _ = h.sum.Write(chunk[:]) } // a hash never returns an error

func (h stateHash) String() string { return hex.EncodeToString(h.sum.Sum(nil)) }

// blockID returns the id of the block with that chunk: its hash in base64. All ids of a
// blob have the same length, as the service requires.
func blockID(chunk [sha256.Size]byte) string { return base64.StdEncoding.EncodeToString(chunk[:]) }

// stager uploads the blocks of one state.
type stager struct {
	client  *blockblob.Client
	known   *blockSet // blocks that need not be sent
	chunk   int       // bytes
	limit   int64     // bytes
	buffers chan []byte

	mu   sync.Mutex // guards sent
	sent []string   // blocks that arrived
}

// stage cuts a state into chunks and uploads the blocks that the record lacks. They
// take effect when they are committed. The record must exist: a staged block
// without a blob would make the blob's creation fail. Blocks that arrived before
// an error need not be sent again.
func (s *Store) stage(ctx context.Context, id string, state io.Reader, known *blockSet) (manifest, error) {
	st := &stager{client: s.blob(id), known: known, chunk: s.unit, limit: s.maxStream, buffers: make(chan []byte, stageParallel)}
	for range stageParallel {
		st.buffers <- nil // allocated on first use: small states need few
	}
	m, err := st.run(ctx, state)
	for _, id := range st.sent {
		known.addStaged(id)
	}
	if err != nil {
		return manifest{}, fmt.Errorf("send state of job %s: %w", id, err)
	}
	return m, nil
}

func (s *stager) run(ctx context.Context, state io.Reader) (manifest, error) {
	sending, ctx := errgroup.WithContext(ctx)
	m, err := s.cut(ctx, sending, state)
	if sendErr := sending.Wait(); sendErr != nil {
		return manifest{}, sendErr // the cause of what stopped cut
	}
	return m, err
}

// cut reads the state to its end, chunk by chunk.
func (s *stager) cut(ctx context.Context, sending *errgroup.Group, state io.Reader) (manifest, error) {
	m, sum, seen := manifest{blocks: []string{}}, newStateHash(), map[string]bool{}
	for {
		buffer, err := s.buffer(ctx)
		if err != nil {
			return manifest{}, err
		}
		n, ended, err := readChunk(state, buffer)
		if err != nil {
			return manifest{}, err
		}
		if n > 0 {
			if m.size += int64(n); m.size > s.limit {
				return manifest{}, fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, s.limit)
			}
			chunk := sha256.Sum256(buffer[:n])
			sum.add(chunk)
			id := blockID(chunk)
			m.blocks = append(m.blocks, id)
			s.send(ctx, sending, id, buffer, n, seen)
		} else {
			s.buffers <- buffer
		}
		if ended {
			m.hash = sum.String()
			return m, nil
		}
	}
}

// buffer waits for a free buffer of one chunk.
func (s *stager) buffer(ctx context.Context) ([]byte, error) {
	select {
	case buffer := <-s.buffers:
		if buffer == nil {
			buffer = make([]byte, s.chunk)
		}
		return buffer, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// send uploads one block in the background, unless the service has it, and then
// frees the buffer.
func (s *stager) send(ctx context.Context, sending *errgroup.Group, id string, buffer []byte, n int, seen map[string]bool) {
	if seen[id] || s.known.has(id) {
		s.buffers <- buffer
		return
	}
	seen[id] = true
	sending.Go(func() error {
		defer func() { s.buffers <- buffer }()
		ctx, cancel := context.WithTimeout(ctx, transferTimeout)
		defer cancel()
		if _, err := s.client.StageBlock(ctx, id, streaming.NopCloser(bytes.NewReader(buffer[:n])), nil); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sent = append(s.sent, id)
		return nil
	})
}

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
