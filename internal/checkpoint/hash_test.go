package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/checkpoint/chunks"
)

// hashAsDocumented is the hash of a state as docs/FORMATS.md describes it, without
// the package's own code.
func hashAsDocumented(t *testing.T, state []byte, key string) string {
	t.Helper()
	var hashes []byte
	for unit := range slices.Chunk(state, 1<<20) {
		seed, err := strconv.ParseUint(key[:16], 16, 64)
		must(t, err)
		sum := xxh3.Hash128Seed(unit, seed)
		hashes = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(hashes, sum.Hi), sum.Lo)
	}
	sum := sha256.Sum256(hashes)
	return hex.EncodeToString(sum[:])
}

// The hash in the record covers whole MiBs, however the state is cut into blocks.
func TestHashOfWholeMiBs(t *testing.T) {
	state := make([]byte, 5<<20+12345)
	fillRandom(state, 1)
	inBubble(t, func(t *testing.T, b *rig) {
		b.store.unit, b.store.cutter = blocks.Unit, chunks.New
		c := b.store.Fresh(ours, "worker-1")
		must(t, c.Save(t.Context(), streamed(state)))
		r := b.read(t)
		want := hashAsDocumented(t, state, string(r.StateKey))
		if r.StateHash != want || r.StateBlocks < 6 || r.StateSize != int64(len(state)) {
			t.Errorf("record = hash %s, %d blocks, %d bytes, want %s of whole MiBs", r.StateHash, r.StateBlocks, r.StateSize, want)
		}
		if b.body(t) != string(state) {
			t.Error("the body is not the state")
		}
	})
}
