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
	n, data := NewNamer(""), make([]byte, 300_000)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // it never returns an error
	chunk := n.Chunk(data)
	ids := []string{chunk, n.Group([]string{chunk, n.Chunk(data[:7])}, 300_007)}
	for i, want := range []string{"oYPkjlz19upY3/ItIF00rQAAAAAABJPgY2h1bmstMDE=", "mSCJy+XcoURB+4saPSlsIQAAAAAABJPnZ3JvdXAtMDE="} {
		if ids[i] != want {
			t.Errorf("id %d = %s, want %s", i, ids[i], want)
		}
	}
	if got := lengthOf(ids); got != 600_007 {
		t.Errorf("the blocks have %d bytes, want 600007", got)
	}
	if other := NewNamer(NewKey()).Chunk(data); other == chunk ||
		len(other) != len(base64.StdEncoding.EncodeToString(make([]byte, sha256.Size))) {
		t.Errorf("the id of the same chunk in another job = %s, want another of 44 characters", other)
	}
}

// The names of a job need its key.
func TestNamesNeedTheKey(t *testing.T) {
	data, key := make([]byte, 300_000), NewKey()
	name := NewNamer(key).Chunk(data)
	for what, other := range map[string]Namer{
		"no key": NewNamer(""), "another key": NewNamer(NewKey()),
		"another half for names": NewNamer(key[:16] + NewKey()[:16]),
	} {
		if other.Chunk(data) == name {
			t.Errorf("with %s the name is the same", what)
		}
	}
	if NewNamer(NewKey()[:16]+key[16:]).Chunk(data) != name {
		t.Error("the half of the key for hashes changes the name")
	}
	if NewNamer(key).Chunk(data[1:]) == name || len(name) != len(NewNamer("").Chunk(data)) {
		t.Error("the name does not tell contents apart, or has another length than names without key")
	}
}

func TestValidKeys(t *testing.T) {
	for key, want := range map[Key]bool{
		"": true, NewKey(): true, "0123456789ABCDEF0123456789abcdef": false, "0123": false, NewKey() + "00": false,
		"x123456789abcdef0123456789abcdef": false,
	} {
		if key.Valid() != want {
			t.Errorf("key %q: valid = %t, want %t", key, !want, want)
		}
	}
}
