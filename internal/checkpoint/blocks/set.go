package blocks

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
)

// Set tracks the blocks that the service has for a blob, so that only missing ones are
// sent. The zero value is for a blob with unknown blocks.
type Set struct {
	known     bool            // whether committed is complete
	order     []string        // blocks of the body, as they stand in it
	committed map[string]bool // the same as a set
	staged    map[string]bool // blocks sent since, which the next commit may name
}

// None is the set of a body that was written by Put Blob, which empties the committed
// list and discards staged blocks; also of a blob that does not exist.
func None() Set { return Set{known: true} }

// Committed is the set of a body that was written by Put Block List with these ids, which
// discards the staged blocks that it does not name.
func Committed(ids []string) Set {
	set := Set{known: true, order: ids, committed: make(map[string]bool, len(ids))}
	for _, id := range ids {
		set.committed[id] = true
	}
	return set
}

// List reads which blocks the body of a blob has. A call takes at most timeout.
func List(ctx context.Context, client *blockblob.Client, timeout time.Duration) (Set, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := client.GetBlockList(ctx, blockblob.BlockListTypeCommitted, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return Committed(nil), nil
	}
	if err != nil {
		return Set{}, err
	}
	var ids []string
	for _, block := range reply.CommittedBlocks {
		if block.Name != nil {
			ids = append(ids, *block.Name)
		}
	}
	return Committed(ids), nil
}

// Known reports whether the blocks of the body are known.
func (s *Set) Known() bool { return s.known }

// Order returns the blocks of the body, as they stand in it.
func (s *Set) Order() []string { return s.order }

// has reports whether a block need not be sent.
func (s *Set) has(id string) bool { return s.committed[id] || s.staged[id] }

func (s *Set) addStaged(id string) {
	if s.staged == nil {
		s.staged = map[string]bool{}
	}
	s.staged[id] = true
}
