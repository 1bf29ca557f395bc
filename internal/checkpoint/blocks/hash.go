package blocks

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"

	"github.com/zeebo/xxh3"
)

// Unit is the length of the units in which a state is hashed, in bytes. It is part of the
// format and never changes, unlike the cut into blocks.
const Unit = 1 << 20

// Sum is the hash of one unit: the XXH3 of 128 bits, with a seed from the key.
type Sum [16]byte

// Sum returns the hash of one unit.
func (k Key) Sum(unit []byte) Sum { return xxh3.Hash128Seed(unit, k.units()).Bytes() }

// Hash hashes a state: it is the SHA-256 of the hashes of the state's units, each of [Unit]
// bytes but the last. Ranges can be hashed side by side, and the hash does not depend on the
// cut into blocks.
type Hash struct{ list hash.Hash }

// NewHash returns the hash of an empty state.
func NewHash() Hash { return Hash{sha256.New()} }

// Add adds the hash of the next unit.
func (h Hash) Add(unit Sum) { _, _ = h.list.Write(unit[:]) } // a hash never returns an error

// String returns the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h.list.Sum(nil)) }

// unitHasher hashes the units of a state one after another. It compares the units in spans of
// a base with the base, and takes the hashes of units that are skipped from there.
type unitHasher struct {
	unit int64 // bytes
	base Base
	same map[int64]int64 // units of the base with the same content, by unit

	at      int64        // bytes written and skipped
	current *xxh3.Hasher // of the written part of the current unit
	skipped bool         // a part of the current unit was skipped

	units []UnitHash
	wrong []int64
}

func newUnitHasher(unit int64, key Key, base Base) unitHasher {
	return unitHasher{unit: unit, base: base, same: base.same(unit), current: xxh3.NewSeed(key.units())}
}

// write continues the state with data.
func (h *unitHasher) write(data []byte) {
	for len(data) > 0 {
		n := min(int64(len(data)), h.unit-h.at%h.unit)
		_, _ = h.current.Write(data[:n]) // a hash never returns an error
		data = data[n:]
		if h.at += n; h.at%h.unit == 0 {
			h.end()
		}
	}
}

// skip continues the state with bytes that are not read.
func (h *unitHasher) skip(bytes int64) {
	for bytes > 0 {
		n := min(bytes, h.unit-h.at%h.unit)
		bytes -= n
		h.skipped = true
		if h.at += n; h.at%h.unit == 0 {
			h.end()
		}
	}
}

// close ends the last unit, which may be shorter.
func (h *unitHasher) close() {
	if h.at%h.unit > 0 {
		h.end()
	}
}

// end ends the current unit.
func (h *unitHasher) end() {
	is, number := UnitHash{}, int64(len(h.units))
	was, compared := h.same[number]
	switch {
	case h.skipped:
		is = h.base.Units[was]
	default:
		is.Sum = h.current.Sum128().Bytes()
		is.Confirmed = compared && is.Sum == h.base.Units[was].Sum
		if compared && !is.Confirmed {
			h.wrong = append(h.wrong, number*h.unit)
		}
	}
	h.units = append(h.units, is)
	h.current.Reset()
	h.skipped = false
}

// sum returns the hash of the state in hex.
func (h *unitHasher) sum() string {
	sum := NewHash()
	for i := range h.units {
		sum.Add(h.units[i].Sum)
	}
	return sum.String()
}

// HashOf returns the hash of a state in memory, in units of that many bytes.
func HashOf(state []byte, unit int, key Key) string {
	sum := NewHash()
	for part := range slices.Chunk(state, unit) {
		sum.Add(key.Sum(part))
	}
	return sum.String()
}
