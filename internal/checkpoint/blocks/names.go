package blocks

import (
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/zeebo/xxh3"
)

// Ids of blocks: the XXH3 of 128 bits of the content, its length, and its type. All ids
// of a blob have the same length, as the service requires.
const (
	idLength  = 32
	chunkKind = "chunk-01"
	groupKind = "group-01"

	patchKind  = "pages-01"
	layoutKind = "layout-1"
)

// Namer makes the ids of the blocks of one job. A block whose id the blob has is not sent, so
// contents with the same id would damage the state that has both. Without the [Key] nobody can
// make such contents.
type Namer struct{ seed uint64 }

// NewNamer returns the namer of a job with that key.
func NewNamer(key Key) Namer { return Namer{key.names()} }

// Chunk returns the id of the block of one chunk.
func (n Namer) Chunk(data []byte) string { return n.name(data, len(data), chunkKind) }

// Group returns the id of the block of a group of so many bytes, whose chunks have these
// ids.
func (n Namer) Group(chunks []string, length int) string {
	return n.name([]byte(strings.Join(chunks, "")), length, groupKind)
}

func (n Namer) name(hashed []byte, length int, kind string) string {
	sum := xxh3.Hash128Seed(hashed, n.seed).Bytes()
	id := append(make([]byte, 0, idLength), sum[:]...)
	id = binary.BigEndian.AppendUint64(id, uint64(length))
	return base64.StdEncoding.EncodeToString(append(id, kind...))
}

// lengthOf returns how many bytes the blocks with these ids have.
func lengthOf(ids []string) (bytes int64) {
	for _, id := range ids {
		length, _ := blockLength(id)
		bytes += length
	}
	return bytes
}

// blockLength returns how many bytes the block with an id has. ok is false for other ids.
func blockLength(id string) (bytes int64, ok bool) {
	var content [idLength + 1]byte // for the decoder
	if len(id) != base64.StdEncoding.EncodedLen(idLength) {
		return 0, false
	}
	if n, err := base64.StdEncoding.Decode(content[:], []byte(id)); err != nil || n != idLength {
		return 0, false
	}
	switch string(content[idLength-8 : idLength]) {
	case chunkKind, groupKind, patchKind, layoutKind:
		return int64(binary.BigEndian.Uint64(content[idLength-16:])), true
	}
	return 0, false
}

// isKind reports whether an id is of a type of blocks.
func isKind(id, kind string) bool {
	content, err := base64.StdEncoding.DecodeString(id)
	return err == nil && len(content) == idLength && string(content[idLength-8:]) == kind
}
