package main

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
)

// stateVersion is the version of the state's format. Raise it when state changes
// its meaning: workers of both versions run side by side during an update.
const stateVersion = 1

// Limits of the chunks that become frames. A job holds a chunk and its frame in memory,
// and an eviction loses at most one chunk of work.
const (
	leastChunk   = 4 << 20
	largestChunk = 16 << 20
	maxFrames    = 50_000 // the service's limit on a blob's blocks
)

// chunkSize returns least, or as many MiB as are necessary for a source of that size to
// fit into the blocks of a blob.
func chunkSize(size, least int64) (int64, error) {
	const step = 1 << 20
	if size <= maxFrames*least {
		return least, nil
	}
	chunk := (size + maxFrames*step - 1) / (maxFrames * step) * step
	if chunk > largestChunk {
		return 0, fmt.Errorf("the blob has %d bytes; at most %d can be compressed", size, int64(maxFrames)*largestChunk)
	}
	return chunk, nil
}

// state is the position in the source, and all that another worker needs to continue.
type state struct {
	Offset   int64  `json:"offset"` // bytes of the source in staged frames
	Size     int64  `json:"size"`
	ETag     string `json:"etag"` // identifies the bytes of the source
	Chunk    int64  `json:"chunk"`
	Restarts int    `json:"restarts,omitempty"`

	// Frames are the hashes of the staged frames, one after another. Written is the size
	// of all these frames.
	Frames  []byte `json:"frames"`
	Written int64  `json:"written"`

	SourceHash runningHash `json:"source_hash"`
	TargetHash runningHash `json:"target_hash"`
}

func newState(etag string, size, chunk int64) state {
	return state{
		ETag: etag, Size: size, Chunk: chunk,
		SourceHash: runningHash{sha256.New()}, TargetHash: runningHash{sha256.New()},
	}
}

// frameHash is the start of the SHA-256 of a frame.
type frameHash [16]byte

func hashOf(frame []byte) frameHash {
	sum := sha256.Sum256(frame)
	return frameHash(sum[:len(frameHash{})])
}

// frames returns the number of staged frames.
func (s *state) frames() int { return len(s.Frames) / len(frameHash{}) }

// frame returns the hash of frame n.
func (s *state) frame(n int) frameHash { return frameHash(s.Frames[n*len(frameHash{}):]) }

// complete reports whether all of the source is staged. An empty source has one frame.
func (s *state) complete() bool { return s.Offset == s.Size && len(s.Frames) > 0 }

// next returns how many bytes of the source go into the next frame.
func (s *state) next() int { return int(min(s.Chunk, s.Size-s.Offset)) }

// add records a chunk that was staged as a frame.
func (s *state) add(data, frame []byte) {
	_, _ = s.SourceHash.Write(data) // a hash never returns an error
	_, _ = s.TargetHash.Write(frame)
	s.Offset += int64(len(data))
	s.Written += int64(len(frame))
	id := hashOf(frame)
	s.Frames = append(s.Frames, id[:]...)
}

// fraction returns the part of the source that is staged.
func (s *state) fraction() float64 {
	if s.Size == 0 {
		return 1
	}
	return float64(s.Offset) / float64(s.Size)
}

// possible reports whether a recorded state is consistent.
func (s *state) possible() bool {
	if s.ETag == "" || s.Restarts < 0 || s.Written < 0 || s.Offset < 0 || s.Offset > s.Size ||
		s.Chunk < 1 || s.Chunk > largestChunk || len(s.Frames)%len(frameHash{}) != 0 ||
		s.SourceHash.Hash == nil || s.TargetHash.Hash == nil {
		return false
	}
	if s.Size == 0 {
		return s.frames() == 1
	}
	return int64(s.frames()) == (s.Offset+s.Chunk-1)/s.Chunk && (s.Offset == s.Size || s.Offset%s.Chunk == 0)
}

// runningHash is an unfinished SHA-256. Its JSON is the state that crypto/sha256 marshals,
// which later releases of Go can read.
type runningHash struct{ hash.Hash }

// hex returns the hash of all bytes so far.
func (h runningHash) hex() string { return hex.EncodeToString(h.Sum(nil)) }

// MarshalJSON implements [json.Marshaler].
func (h runningHash) MarshalJSON() ([]byte, error) {
	raw, err := h.Hash.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, err
	}
	return json.Marshal(raw)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (h *runningHash) UnmarshalJSON(text []byte) error {
	var raw []byte
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	h.Hash = sha256.New()
	return h.Hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(raw)
}
