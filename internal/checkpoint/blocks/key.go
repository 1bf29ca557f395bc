package blocks

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// Key is the random secret of one job, in hex: 8 bytes for the hashes of units, 8 for the
// names of blocks.
//
// XXH3 finds what differs by chance at a sixteenth of the time of SHA-256. It is no
// cryptographic hash: an author who knows the seed can make contents that collide. A state often
// has data of third parties, so the seed is a secret that was drawn after they chose it. A
// reader of the record knows it, but may also write the record, or reads a state that is
// not his to choose. The two seeds differ, so that contents with the same block name by
// accident still have different hashes of units: then the restore reports a damaged state
// and does not return a wrong one.
type Key string

// keyLength is the length of a key, in bytes.
const keyLength = 16

// NewKey returns a random key.
func NewKey() Key {
	var key [keyLength]byte
	_, _ = rand.Read(key[:]) // never returns an error
	return Key(hex.EncodeToString(key[:]))
}

// Valid reports whether a recorded key can be used: it is empty or complete.
func (k Key) Valid() bool {
	_, err := hex.DecodeString(string(k))
	return k == "" || err == nil && len(k) == 2*keyLength && strings.ToLower(string(k)) == string(k)
}

func (k Key) units() uint64 { return k.seed(0) }
func (k Key) names() uint64 { return k.seed(keyLength / 2) }

func (k Key) seed(from int) uint64 {
	var key [keyLength]byte
	_, _ = hex.Decode(key[:], []byte(k)) // a valid key
	return binary.BigEndian.Uint64(key[from:])
}
