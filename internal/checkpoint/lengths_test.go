package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"testing"
	"testing/iotest"

	"github.com/spotworker/spotworker/internal/checkpoint/chunks"
)

// The blocks of a state have all of it, whatever its length is and however its stream
// hands it out: with its end or before it, in whole units or in pieces.
func TestEveryLengthIsKept(t *testing.T) {
	const scale = 1024
	readers := map[string]func(io.Reader) io.Reader{
		"the end after the data":    func(r io.Reader) io.Reader { return r },
		"the end with the data":     iotest.DataErrReader,
		"half of what is asked for": iotest.HalfReader,
	}
	state := make([]byte, 10*scale)
	for name, reader := range readers {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				b.store.unit, b.store.cutter = scale, func() *chunks.Cutter { return chunks.Scaled(scale) }
				c := b.store.Fresh(ours, "worker-1")
				for length := scale / 2; length <= len(state); length += scale / 4 {
					for variant := range 3 { // the state before, one of other content, one that changed in one place
						switch variant {
						case 1:
							fillRandom(state, uint64(length))
						case 2:
							state[length/2]++
						}
						saved := state[:length]
						must(t, c.Save(t.Context(), Snapshot{Stream: func() (io.ReadCloser, error) {
							return io.NopCloser(reader(bytes.NewReader(saved))), nil
						}}))
						if kept := b.body(t); kept != string(saved) {
							t.Fatalf("variant %d of %d bytes: the blocks have %d bytes, want the state", variant, length, len(kept))
						}
					}
				}
			})
		})
	}
}

// Ids of blocks are part of what is stored: with others, workers of two versions would
// send each other's states again.
func TestBlockIDs(t *testing.T) {
	n, data := newNamer("job-1"), make([]byte, 300_000)
	fillRandom(data, 1)
	chunk := n.chunk(data)
	ids := []string{chunk, n.group([]string{chunk, n.chunk(data[:7])}, 300_007)}
	for i, want := range []string{"vJ631Nwq3JnabiYWVIaR1wAAAAAABJPgY2h1bmstMDE=", "eQ8BPmtDDLkpZXNaeo9NWwAAAAAABJPnZ3JvdXAtMDE="} {
		if ids[i] != want {
			t.Errorf("id %d = %s, want %s", i, ids[i], want)
		}
	}
	if got := lengthOf(ids); got != 600_007 {
		t.Errorf("the blocks have %d bytes, want 600007", got)
	}
	if other := newNamer("job-2").chunk(data); other == chunk || len(other) != len(base64.StdEncoding.EncodeToString(make([]byte, sha256.Size))) {
		t.Errorf("the id of the same chunk in another job = %s, want another of 44 characters", other)
	}
}
