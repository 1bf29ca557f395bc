package handlers

import (
	"bytes"
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

// cursor is how far a blob is hashed.
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

	// Hash is the state of crypto/sha256, which the Go project keeps readable
	// from release to release (documentation of package hash).
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

	// ETag says which bytes were hashed: it changes with every write of the
	// blob. It is in the form of the HTTP header, quotes included.
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

// progress is the report of where the cursor stands.
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
	marshaler, ok := c.sum.(encoding.BinaryMarshaler)
	if !ok {
		return nil, errors.New("this build's SHA-256 cannot save its state")
	}
	sum, err := marshaler.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("save the state of the hash: %w", err)
	}
	return json.Marshal(digestState{Offset: c.offset, ETag: string(c.etag), Size: c.size, Restarts: c.restarts, Hash: sum})
}

// decodeState is the inverse of progress. It never guesses: a hash that goes on
// from a wrong state is a wrong digest.
func decodeState(raw []byte, version int) (*cursor, error) {
	if version != digestStateVersion {
		return nil, fmt.Errorf("it has version %d; this worker reads version %d", version, digestStateVersion)
	}
	var s digestState
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	if s.Offset < 0 || s.Offset > s.Size || s.ETag == "" {
		return nil, fmt.Errorf("it cannot be right: offset %d, size %d, etag %q", s.Offset, s.Size, s.ETag)
	}
	c := newCursor(azcore.ETag(s.ETag), s.Size)
	c.offset, c.restarts = s.Offset, s.Restarts
	unmarshaler, ok := c.sum.(encoding.BinaryUnmarshaler)
	if !ok {
		return nil, errors.New("this build's SHA-256 cannot go on from a state")
	}
	if err := unmarshaler.UnmarshalBinary(s.Hash); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	return c, nil
}

// result is what a finished job returns.
func (c *cursor) result(p DigestPayload) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // names are for people too
	err := encoder.Encode(DigestResult{
		Algorithm: "sha256", Digest: hex.EncodeToString(c.sum.Sum(nil)), Bytes: c.size,
		Container: p.Container, Blob: p.Blob, Version: p.Version, ETag: string(c.etag),
	})
	if err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// portion says how much of a whole is done, in the whole's unit.
func portion(done, whole int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	unit, divisor := 0, int64(1)
	for unit < len(units)-1 && whole/divisor >= 1024 {
		unit, divisor = unit+1, divisor*1024
	}
	if unit == 0 {
		return fmt.Sprintf("%d of %d B", done, whole)
	}
	return fmt.Sprintf("%.1f of %.1f %s", float64(done)/float64(divisor), float64(whole)/float64(divisor), units[unit])
}
