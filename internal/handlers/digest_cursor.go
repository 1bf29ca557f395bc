package handlers

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/job"
)

// digestStateVersion is the version of the state's format.
const digestStateVersion = 1

// cursor is the position of a hash.
type cursor struct {
	offset   int64       // bytes hashed
	size     int64       // of the blob
	etag     azcore.ETag // of the version that is read, with its quotes
	restarts int         // how often the job started over so far
	sum      hash.Hash
}

// digestState is the JSON of a cursor: the checkpoint of a digest job.
type digestState struct {
	Offset   int64  `json:"offset"`
	ETag     string `json:"etag"`
	Size     int64  `json:"size"`
	Restarts int    `json:"restarts,omitempty"`

	// Hash is the result of saveHash.
	Hash []byte `json:"hash"`
}

// DigestResult is the result of a digest job. Its fields come in this order.
type DigestResult struct {
	// Algorithm is "sha256".
	Algorithm string `json:"algorithm"`

	// Digest is the hash in lower-case hex.
	Digest string `json:"digest"`

	// Bytes is the size of the blob.
	Bytes int64 `json:"bytes"`

	// Container, Blob and Version are the payload's.
	Container string `json:"container"`
	Blob      string `json:"blob"`
	Version   string `json:"version,omitempty"`

	// ETag identifies the bytes that were hashed: it changes with every write of the
	// blob. It has the form of the HTTP header, including the quotes.
	ETag string `json:"etag"`
}

func newCursor(etag azcore.ETag, size int64) *cursor {
	return &cursor{size: size, etag: etag, sum: sha256.New()}
}

// add hashes the next bytes of the blob.
func (c *cursor) add(data []byte) {
	_, _ = c.sum.Write(data) // a hash never returns an error
	c.offset += int64(len(data))
}

// progress returns a report of the cursor.
func (c *cursor) progress() (job.Progress, error) {
	state, err := c.encode()
	if err != nil {
		return job.Progress{}, err
	}
	return job.Progress{
		State: state, Version: digestStateVersion,
		Fraction: float64(c.offset) / float64(c.size),
		Text:     portion(c.offset, c.size),
	}, nil
}

func (c *cursor) encode() ([]byte, error) {
	sum, err := saveHash(c.sum)
	if err != nil {
		return nil, err
	}
	return json.Marshal(digestState{Offset: c.offset, ETag: string(c.etag), Size: c.size, Restarts: c.restarts, Hash: sum})
}

// decodeState is the inverse of progress. It rejects anything inconsistent: a hash that
// continues from a wrong state gives a wrong digest.
func decodeState(raw []byte) (*cursor, error) {
	var s digestState
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	if s.Offset < 0 || s.Offset > s.Size || s.ETag == "" || s.Restarts < 0 {
		return nil, fmt.Errorf("it cannot be right: offset %d, size %d, etag %q, %d restarts", s.Offset, s.Size, s.ETag, s.Restarts)
	}
	sum, err := restoreHash(s.Hash)
	if err != nil {
		return nil, err
	}
	return &cursor{offset: s.Offset, size: s.Size, etag: azcore.ETag(s.ETag), restarts: s.Restarts, sum: sum}, nil
}

// result returns the result of a finished job.
func (c *cursor) result(p DigestPayload) ([]byte, error) {
	return encodeResult(DigestResult{
		Algorithm: "sha256", Digest: hex.EncodeToString(c.sum.Sum(nil)), Bytes: c.size,
		Container: p.Container, Blob: p.Blob, Version: p.Version, ETag: string(c.etag),
	})
}

// saveHash returns the state of an unfinished SHA-256, which later releases of Go can
// read (documentation of package hash).
func saveHash(sum hash.Hash) ([]byte, error) {
	marshaler, ok := sum.(encoding.BinaryMarshaler)
	if !ok {
		return nil, errors.New("this build's SHA-256 cannot save its state")
	}
	state, err := marshaler.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("save the state of the hash: %w", err)
	}
	return state, nil
}

// restoreHash is the inverse of saveHash.
func restoreHash(state []byte) (hash.Hash, error) {
	sum := sha256.New()
	unmarshaler, ok := sum.(encoding.BinaryUnmarshaler)
	if !ok {
		return nil, errors.New("this build's SHA-256 cannot continue from a state")
	}
	if err := unmarshaler.UnmarshalBinary(state); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	return sum, nil
}
