package queue

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/jobid"
)

// Payload is a job's input: inline, or a reference to a blob that holds it.
// The zero value is an empty payload.
type Payload struct {
	data   []byte
	isJSON bool
	ref    *Ref
}

// Ref names a payload that is kept in a blob, by what it must contain.
type Ref struct {
	SHA256 string `json:"sha256"` // lower-case hex
	Size   int64  `json:"size"`   // bytes

	// unknown holds fields of newer versions' making, which survive a rewrite.
	unknown map[string]json.RawMessage
}

// UnmarshalJSON reads the fields by their exact names, as all of an envelope.
func (r *Ref) UnmarshalJSON(raw []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	for name, target := range map[string]any{"sha256": &r.SHA256, "size": &r.Size} {
		value, ok := fields[name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(value, target); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		delete(fields, name)
	}
	if len(fields) > 0 {
		r.unknown = fields
	}
	return nil
}

// MarshalJSON writes the fields, unknown ones included.
func (r *Ref) MarshalJSON() ([]byte, error) {
	type known Ref
	raw, err := marshal((*known)(r))
	if err != nil || len(r.unknown) == 0 {
		return raw, err
	}
	return mergeUnknown(raw, r.unknown)
}

// JSONPayload returns a payload that is a JSON value. Its bytes are the value's
// compact text.
func JSONPayload(raw []byte) (Payload, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return Payload{}, fmt.Errorf("payload is not JSON: %w", err)
	}
	return Payload{data: compact.Bytes(), isJSON: true}, nil
}

// BytesPayload returns a payload of any bytes.
func BytesPayload(data []byte) Payload { return Payload{data: data} }

// Inline returns the payload's bytes; ok is false when they are in a blob.
func (p Payload) Inline() (data []byte, ok bool) { return p.data, p.ref == nil }

// Ref returns where the payload's bytes are kept, or nil when they are inline.
func (p Payload) Ref() *Ref { return p.ref }

// Hash returns the SHA-256 of the payload's bytes in lower-case hex. The job's
// record keeps it, so that an id used again for other work is noticed.
func (p Payload) Hash() string {
	if p.ref != nil {
		return p.ref.SHA256
	}
	return hashOf(p.data)
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// MaxPayload is the largest payload of a job, in bytes. A worker holds it in
// memory; larger input belongs in a blob that the payload names.
const MaxPayload = 64 << 20

// transferTimeout bounds the transfer of one payload.
const transferTimeout = 2 * time.Minute

// ErrPayload says that a payload in a blob is missing or is not what its
// message says. No further attempt can mend it.
var ErrPayload = errors.New("payload cannot be used")

var errPayloadDiffers = fmt.Errorf("%w: its blob does not have the size and hash that the message states", ErrPayload)

// Payloads keeps payloads that are too large for a message, in blobs named
// <hhh>/<job id>/<sha256>.
type Payloads struct {
	container *container.Client
}

// NewPayloads returns the payloads in that container.
func NewPayloads(c *container.Client) *Payloads { return &Payloads{container: c} }

// Check reports whether the container can be reached.
func (p *Payloads) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := p.container.GetProperties(ctx, nil); err != nil {
		return fmt.Errorf("reach the container of payloads: %w", err)
	}
	return nil
}

// Offload stores the envelope's payload in a blob and returns an envelope that
// refers to it. Storing the same payload for the same job again changes
// nothing: the blob's name is its content.
func (p *Payloads) Offload(ctx context.Context, e Envelope) (Envelope, error) {
	data, inline := e.Payload.Inline()
	if !inline {
		return Envelope{}, fmt.Errorf("message of job %s does not fit although its payload is in a blob", e.ID)
	}
	if len(data) > MaxPayload {
		return Envelope{}, fmt.Errorf("payload of job %s has %d bytes; at most %d are allowed: put the data in a blob and name it in the payload", e.ID, len(data), MaxPayload)
	}
	ref := &Ref{SHA256: e.Payload.Hash(), Size: int64(len(data))}
	if err := p.put(ctx, blobName(e.ID, ref), data); err != nil {
		return Envelope{}, fmt.Errorf("store payload of job %s: %w", e.ID, err)
	}
	e.Payload = Payload{ref: ref}
	return e, nil
}

// put creates a blob whose name tells its content, so an existing one is right.
func (p *Payloads) put(ctx context.Context, name string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	_, err := p.container.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(data)), &blockblob.UploadOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}},
	})
	if bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.ConditionNotMet) {
		return nil
	}
	return err
}

// Load returns the envelope's payload, from the message or from its blob. The
// error wraps [ErrPayload] when the blob is missing or differs from what the
// message says.
func (p *Payloads) Load(ctx context.Context, e Envelope) ([]byte, error) {
	data, inline := e.Payload.Inline()
	if inline {
		return data, nil
	}
	ref := e.Payload.Ref()
	if ref.Size > MaxPayload {
		return nil, fmt.Errorf("%w: it has %d bytes; at most %d are allowed", ErrPayload, ref.Size, MaxPayload)
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	data, err := p.get(ctx, blobName(e.ID, ref), ref.Size)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return nil, fmt.Errorf("%w: its blob %s is missing", ErrPayload, blobName(e.ID, ref))
	}
	if err != nil && !errors.Is(err, ErrPayload) {
		err = fmt.Errorf("load payload of job %s: %w", e.ID, err)
	}
	if err != nil {
		return nil, err
	}
	if hashOf(data) != ref.SHA256 {
		return nil, errPayloadDiffers
	}
	return data, nil
}

// Find returns the payload of a job of which only the hash is known, as its record
// has it: the empty one, or one in a blob. ok is false when there is no such blob;
// the payload was in the message then, and is gone with it.
func (p *Payloads) Find(ctx context.Context, id, hash string) (found Payload, ok bool, err error) {
	if found.Hash() == hash {
		return found, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ref := &Ref{SHA256: hash}
	reply, err := p.container.NewBlobClient(blobName(id, ref)).GetProperties(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return Payload{}, false, nil
	}
	if err != nil {
		return Payload{}, false, fmt.Errorf("look for the payload of job %s: %w", id, err)
	}
	ref.Size = *reply.ContentLength
	return Payload{ref: ref}, true, nil
}

// get reads a blob into one buffer of the size that its message states. It reads
// nothing of a blob of another size. The caller compares the hash.
func (p *Payloads) get(ctx context.Context, name string, size int64) ([]byte, error) {
	reply, err := p.container.NewBlobClient(name).DownloadStream(ctx, nil)
	if err != nil {
		return nil, err
	}
	body := reply.NewRetryReader(ctx, nil)
	defer func() { _ = body.Close() }()
	if length := reply.ContentLength; length == nil || *length != size {
		return nil, errPayloadDiffers
	}
	data := make([]byte, size)
	_, err = io.ReadFull(body, data)
	return data, err
}

// getAtMost reads a blob of which only the largest size is known, and at most one
// byte more than that.
func (p *Payloads) getAtMost(ctx context.Context, name string, limit int64) ([]byte, error) {
	reply, err := p.container.NewBlobClient(name).DownloadStream(ctx, nil)
	if err != nil {
		return nil, err
	}
	body := reply.NewRetryReader(ctx, nil)
	defer func() { _ = body.Close() }()
	return io.ReadAll(io.LimitReader(body, limit+1))
}

// Discard deletes the envelope's payload blob, if it has one.
func (p *Payloads) Discard(ctx context.Context, e Envelope) error {
	ref := e.Payload.Ref()
	if ref == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := p.container.NewBlobClient(blobName(e.ID, ref)).Delete(ctx, nil)
	if err != nil && !bloberror.HasCode(err, bloberror.BlobNotFound) {
		return fmt.Errorf("delete payload of job %s: %w", e.ID, err)
	}
	return nil
}

func blobName(id string, ref *Ref) string { return jobid.Path(id) + "/" + ref.SHA256 }
