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

// Sum is the hash of one unit: the XXH3 of 128 bits and zeros, or without a key the SHA-256.
type Sum [sha256.Size]byte

// keyedSum is how many bytes of a Sum the XXH3 takes.
const keyedSum = 16

// Sum returns the hash of one unit.
func (k Key) Sum(unit []byte) (s Sum) {
	if k == "" {
		return sha256.Sum256(unit)
	}
	sum := xxh3.Hash128Seed(unit, k.units()).Bytes()
	copy(s[:], sum[:])
	return s
}

// Hash hashes a state that is kept in blocks: the SHA-256 of the hashes of its units, each
// of [Unit] bytes but the last. Ranges can be hashed side by side, and the hash says nothing
// about blocks: how a state is cut is its writer's business, and a reader of another version
// need not know.
type Hash struct {
	list hash.Hash
	sum  int // bytes of each sum
}

// NewHash returns the hash of an empty state of a job with that key.
func NewHash(key Key) Hash {
	if key == "" {
		return Hash{sha256.New(), sha256.Size}
	}
	return Hash{sha256.New(), keyedSum}
}

// Add adds the hash of the next unit.
func (h Hash) Add(unit Sum) { _, _ = h.list.Write(unit[:h.sum]) } // a hash never returns an error

// String returns the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h.list.Sum(nil)) }

// unitHash hashes one unit in parts.
type unitHash struct {
	sha   hash.Hash // without a key
	keyed *xxh3.Hasher
}

func newUnitHash(key Key) unitHash {
	if key == "" {
		return unitHash{sha: sha256.New()}
	}
	return unitHash{keyed: xxh3.NewSeed(key.units())}
}

func (u unitHash) write(data []byte) { // a hash never returns an error
	if u.keyed != nil {
		_, _ = u.keyed.Write(data)
		return
	}
	_, _ = u.sha.Write(data)
}

func (u unitHash) sum() (s Sum) {
	if u.keyed != nil {
		sum := u.keyed.Sum128().Bytes()
		copy(s[:], sum[:])
		return s
	}
	u.sha.Sum(s[:0])
	return s
}

func (u unitHash) reset() {
	if u.keyed != nil {
		u.keyed.Reset()
		return
	}
	u.sha.Reset()
}

// unitHasher hashes the units of a state one after another. It compares the units in spans of
// a base with the base, and takes the hashes of units that are skipped from there.
type unitHasher struct {
	unit int64 // bytes
	key  Key
	base Base
	same map[int64]int64 // units of the base with the same content, by unit

	at      int64    // bytes written and skipped
	current unitHash // of the written part of the current unit
	skipped bool     // a part of the current unit was skipped

	units []UnitHash
	wrong []int64
}

func newUnitHasher(unit int64, key Key, base Base) unitHasher {
	return unitHasher{unit: unit, key: key, base: base, same: base.same(unit), current: newUnitHash(key)}
}

// write continues the state with data.
func (h *unitHasher) write(data []byte) {
	for len(data) > 0 {
		n := min(int64(len(data)), h.unit-h.at%h.unit)
		h.current.write(data[:n])
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
		is.Sum = h.current.sum()
		is.Confirmed = compared && is.Sum == h.base.Units[was].Sum
		if compared && !is.Confirmed {
			h.wrong = append(h.wrong, number*h.unit)
		}
	}
	h.units = append(h.units, is)
	h.current.reset()
	h.skipped = false
}

// sum returns the hash of the state in hex.
func (h *unitHasher) sum() string {
	sum := NewHash(h.key)
	for i := range h.units {
		sum.Add(h.units[i].Sum)
	}
	return sum.String()
}

// HashOf returns the hash of a state that is in memory, in units of that many bytes.
func HashOf(state []byte, unit int, key Key) string {
	sum := NewHash(key)
	for part := range slices.Chunk(state, unit) {
		sum.Add(key.Sum(part))
	}
	return sum.String()
}
