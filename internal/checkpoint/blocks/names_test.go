package blocks

import (
	"crypto/sha256"
	"encoding/base64"
	"math/rand/v2"
	"testing"
)

// Ids of blocks are part of the stored data: with others, workers of two versions would
// send each other's states again.
func TestBlockIDs(t *testing.T) {
	n, data := NewNamer("job-1"), make([]byte, 300_000)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // it never returns an error
	chunk := n.Chunk(data)
	ids := []string{chunk, n.Group([]string{chunk, n.Chunk(data[:7])}, 300_007)}
	for i, want := range []string{"vJ631Nwq3JnabiYWVIaR1wAAAAAABJPgY2h1bmstMDE=", "eQ8BPmtDDLkpZXNaeo9NWwAAAAAABJPnZ3JvdXAtMDE="} {
		if ids[i] != want {
			t.Errorf("id %d = %s, want %s", i, ids[i], want)
		}
	}
	if got := lengthOf(ids); got != 600_007 {
		t.Errorf("the blocks have %d bytes, want 600007", got)
	}
	if other := NewNamer("job-2").Chunk(data); other == chunk ||
		len(other) != len(base64.StdEncoding.EncodeToString(make([]byte, sha256.Size))) {
		t.Errorf("the id of the same chunk in another job = %s, want another of 44 characters", other)
	}
}
