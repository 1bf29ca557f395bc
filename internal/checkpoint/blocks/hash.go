package blocks

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"
)

// Unit is the length of the units in which a state is hashed, in bytes. It is part of the
// format and never changes, unlike the cut into blocks.
const Unit = 1 << 20

// Hash hashes a state that is kept in blocks: the SHA-256 of the SHA-256 hashes of
// its units, each of [Unit] bytes but the last. Ranges can be hashed side by side, and
// the hash says nothing about blocks: how a state is cut is its writer's business, and a
// reader of another version need not know.
type Hash struct{ sum hash.Hash }

// NewHash returns the hash of an empty state.
func NewHash() Hash { return Hash{sha256.New()} }

// Add adds the hash of the next unit.
func (h Hash) Add(unit [sha256.Size]byte) { _, _ = h.sum.Write(unit[:]) } // a hash never returns an error

// String returns the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h.sum.Sum(nil)) }

// HashOf returns the hash of a state that is in memory, in units of that many bytes.
func HashOf(state []byte, unit int) string {
	sum := NewHash()
	for part := range slices.Chunk(state, unit) {
		sum.Add(sha256.Sum256(part))
	}
	return sum.String()
}
