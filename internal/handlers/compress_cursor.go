package handlers

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/job"
)

// compressStateVersion is the version of the state's format.
const compressStateVersion = 1

// Sizes of the chunks that become frames. A job holds a chunk and its frame in memory,
// and a stop loses at most that.
const (
	maxFrames    = 50_000 // the service's limit on a blob's blocks
	largestChunk = 16 << 20
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
		return 0, fmt.Errorf("it has %d bytes; at most %d can be compressed", size, int64(maxFrames)*largestChunk)
	}
	return chunk, nil
}

// frameHash is the start of the SHA-256 of a frame.
type frameHash [16]byte

// frameCursor is the position of a compression.
type frameCursor struct {
	offset   int64 // bytes of the source that are in staged frames
	size     int64 // of the source
	chunk    int64 // bytes of the source in a frame
	etag     azcore.ETag
	restarts int
	frames   []frameHash // staged, in order
	written  int64       // bytes in them
	in, out  hash.Hash   // SHA-256 of what was read, and of what was written
}

// compressState is the JSON of a frameCursor: the checkpoint of a compress job.
type compressState struct {
	Offset   int64  `json:"offset"`
	ETag     string `json:"etag"`
	Size     int64  `json:"size"`
	Chunk    int64  `json:"chunk"`
	Restarts int    `json:"restarts,omitempty"`

	// Frames are the hashes of all staged frames in a row, Written their bytes.
	Frames  []byte `json:"frames"`
	Written int64  `json:"written"`

	// SourceHash and TargetHash are what saveHash returns.
	SourceHash []byte `json:"source_hash"`
	TargetHash []byte `json:"target_hash"`
}

func newFrameCursor(etag azcore.ETag, size, chunk int64) *frameCursor {
	return &frameCursor{size: size, chunk: chunk, etag: etag, in: sha256.New(), out: sha256.New()}
}

// atEnd reports whether all of the source is staged. An empty one has one frame.
func (c *frameCursor) atEnd() bool { return c.offset == c.size && len(c.frames) > 0 }

// next returns how many bytes of the source go into the next frame.
func (c *frameCursor) next() int { return int(min(c.chunk, c.size-c.offset)) }

// hashOf returns the hash that identifies a frame.
func hashOf(frame []byte) frameHash {
	sum := sha256.Sum256(frame)
	return frameHash(sum[:len(frameHash{})])
}

// add records a chunk that was staged as a frame.
func (c *frameCursor) add(data, frame []byte) {
	_, _ = c.in.Write(data) // a hash never returns an error
	_, _ = c.out.Write(frame)
	c.offset += int64(len(data))
	c.written += int64(len(frame))
	c.frames = append(c.frames, hashOf(frame))
}

// progress returns a report of the cursor.
func (c *frameCursor) progress() (job.Progress, error) {
	state, err := c.encode()
	if err != nil {
		return job.Progress{}, err
	}
	fraction := 1.0
	if c.size > 0 {
		fraction = float64(c.offset) / float64(c.size)
	}
	return job.Progress{State: state, Version: compressStateVersion, Fraction: fraction, Text: portion(c.offset, c.size)}, nil
}

func (c *frameCursor) encode() ([]byte, error) {
	in, err := saveHash(c.in)
	if err != nil {
		return nil, err
	}
	out, err := saveHash(c.out)
	if err != nil {
		return nil, err
	}
	frames := make([]byte, 0, len(c.frames)*len(frameHash{}))
	for _, f := range c.frames {
		frames = append(frames, f[:]...)
	}
	return json.Marshal(compressState{
		Offset: c.offset, ETag: string(c.etag), Size: c.size, Chunk: c.chunk, Restarts: c.restarts,
		Frames: frames, Written: c.written, SourceHash: in, TargetHash: out,
	})
}

// decodeFrames is the inverse of progress. It rejects anything inconsistent.
func decodeFrames(raw []byte) (*frameCursor, error) {
	var s compressState
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	if !s.possible() {
		return nil, fmt.Errorf("it cannot be right: offset %d, size %d, chunk %d, %d bytes of frames, etag %q", s.Offset, s.Size, s.Chunk, len(s.Frames), s.ETag)
	}
	in, err := restoreHash(s.SourceHash)
	if err != nil {
		return nil, err
	}
	out, err := restoreHash(s.TargetHash)
	if err != nil {
		return nil, err
	}
	c := &frameCursor{
		offset: s.Offset, size: s.Size, chunk: s.Chunk, etag: azcore.ETag(s.ETag),
		restarts: s.Restarts, written: s.Written, in: in, out: out,
	}
	for rest := s.Frames; len(rest) > 0; rest = rest[len(frameHash{}):] {
		c.frames = append(c.frames, frameHash(rest))
	}
	return c, nil
}

// possible reports whether the number of frames matches the offset.
func (s *compressState) possible() bool {
	if s.ETag == "" || s.Restarts < 0 || s.Written < 0 || s.Offset < 0 || s.Offset > s.Size || s.Chunk < 1 || s.Chunk > largestChunk || len(s.Frames)%len(frameHash{}) != 0 {
		return false
	}
	frames := int64(len(s.Frames) / len(frameHash{}))
	if s.Size == 0 {
		return frames == 1
	}
	return frames == (s.Offset+s.Chunk-1)/s.Chunk && (s.Offset == s.Size || s.Offset%s.Chunk == 0)
}

// hexSum is a hash so far, in lower-case hex.
func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
