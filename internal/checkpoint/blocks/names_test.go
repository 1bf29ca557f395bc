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
	n, data := NewNamer("job-1", ""), make([]byte, 300_000)
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
	if other := NewNamer("job-2", "").Chunk(data); other == chunk ||
		len(other) != len(base64.StdEncoding.EncodeToString(make([]byte, sha256.Size))) {
		t.Errorf("the id of the same chunk in another job = %s, want another of 44 characters", other)
	}
}

// The names of a job with a key need the key: content made to have the name of other content,
// by the id of the job alone, does not.
func TestNamesNeedTheKey(t *testing.T) {
	data, key := make([]byte, 300_000), NewKey()
	name := NewNamer("job-1", key).Chunk(data)
	for what, other := range map[string]Namer{
		"no key": NewNamer("job-1", ""), "another key": NewNamer("job-1", NewKey()),
		"another half for names": NewNamer("job-1", key[:16]+NewKey()[:16]),
	} {
		if other.Chunk(data) == name {
			t.Errorf("with %s the name is the same", what)
		}
	}
	if NewNamer("job-1", NewKey()[:16]+key[16:]).Chunk(data) != name {
		t.Error("the half of the key for hashes changes the name")
	}
	if NewNamer("job-1", key).Chunk(data[1:]) == name || len(name) != len(NewNamer("job-1", "").Chunk(data)) {
		t.Error("the name does not tell contents apart, or has another length than names without key")
	}
}

// The hash of a unit is the same in one piece and in parts, of every length.
func TestUnitHashInParts(t *testing.T) {
	data := make([]byte, 5000)
	for i := range data {
		data[i] = byte(i * i >> 3)
	}
	for _, key := range []Key{"", NewKey(), "00000000000000000000000000000001"} {
		hasher := newUnitHash(key)
		for length := 0; length <= len(data); length += 7 {
			hasher.reset()
			for rest, n := data[:length], 1; len(rest) > 0; n = n*3%1500 + 1 {
				part := min(n, len(rest))
				hasher.write(rest[:part])
				rest = rest[part:]
			}
			if hasher.sum() != key.Sum(data[:length]) {
				t.Fatalf("key %q: %d bytes in parts have another hash than in one piece", key, length)
			}
		}
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
