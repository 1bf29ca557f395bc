package checkpoint

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"

	"github.com/spotworker/spotworker/internal/checkpoint/chunks"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// The blocks of a state have all of it, for any length and any stream: with its end or
// before it, in whole units or in pieces.
func TestEveryLengthIsKept(t *testing.T) {
	proof.Only(t, "it tries all lengths")
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
					for variant := range 3 { // the state before, with other content, changed in one place
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
