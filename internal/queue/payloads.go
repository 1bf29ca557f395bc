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
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/storage/blobs"
)

// Payload is a job's input: inline, or a reference to a blob.
// The zero value is an empty payload.
type Payload struct {
	data   []byte
	isJSON bool
	ref    *Ref
}

// Ref identifies a payload in a blob by its hash and size.
type Ref struct {
	SHA256 string `json:"sha256"` // lower-case hex
	Size   int64  `json:"size"`   // bytes

	// unknown holds fields of newer versions, which are kept on a rewrite.
	unknown map[string]json.RawMessage
}

// UnmarshalJSON reads the fields by their exact names, as everywhere in an envelope.
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

// JSONPayload returns a payload that is a JSON value, as compact text.
func JSONPayload(raw []byte) (Payload, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return Payload{}, fmt.Errorf("payload is not JSON: %w", err)
	}
	return Payload{data: compact.Bytes(), isJSON: true}, nil
}

// BytesPayload returns a payload of any bytes.
func BytesPayload(data []byte) Payload { return Payload{data: data} }

// IsJSON reports whether the payload was made by [JSONPayload].
func (p Payload) IsJSON() bool { return p.isJSON }

// Inline returns the payload's bytes; ok is false if they are in a blob.
func (p Payload) Inline() (data []byte, ok bool) { return p.data, p.ref == nil }

// Ref returns the reference to the payload's blob, or nil if the payload is inline.
func (p Payload) Ref() *Ref { return p.ref }

// Hash returns the SHA-256 of the payload's bytes in lower-case hex. See
// [Envelope.Work].
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

// ErrPayload means that a payload in a blob is missing, or is not its message's payload.
// A retry cannot help.
var ErrPayload = errors.New("payload cannot be used")

var errPayloadDiffers = fmt.Errorf("%w: its blob does not have the size and hash that the message states", ErrPayload)

// Payloads stores payloads that are too large for a message, in blobs named
// <hhh>/<job id>/<sha256>, with -<again> behind that for a job that was put again: a late
// worker that deletes the payload of the job's earlier run must not delete this one.
type Payloads struct{ blobs blobs.Container }

// NewPayloads returns the store of the payloads in container c.
func NewPayloads(c *container.Client) *Payloads { return &Payloads{blobs.In(c)} }

// Check reports whether the container can be reached.
func (p *Payloads) Check(ctx context.Context) error {
	if err := p.blobs.Check(ctx); err != nil {
		return fmt.Errorf("reach the container of payloads: %w", err)
	}
	return nil
}

// Offload stores the envelope's payload in a blob and returns an envelope that
// refers to it. Storing the same payload for the same job again is harmless: the
// blob is named after its content.
func (p *Payloads) Offload(ctx context.Context, e Envelope) (Envelope, error) {
	data, inline := e.Payload.Inline()
	if !inline {
		return Envelope{}, fmt.Errorf("message of job %s does not fit although its payload is in a blob", e.ID)
	}
	if len(data) > MaxPayload {
		return Envelope{}, fmt.Errorf("payload of job %s has %d bytes; at most %d are allowed: put the data in a blob and name it in the "+
			"payload", e.ID, len(data), MaxPayload)
	}
	ref := &Ref{SHA256: e.Payload.Hash(), Size: int64(len(data))}
	if err := p.blobs.Create(ctx, blobName(e.ID, ref, e.Again), data, ""); err != nil {
		return Envelope{}, fmt.Errorf("store payload of job %s: %w", e.ID, err)
	}
	e.Payload = Payload{ref: ref}
	return e, nil
}

// Load returns the envelope's payload, from the message or from its blob. The error wraps
// [ErrPayload] if the blob is missing or differs from the message.
func (p *Payloads) Load(ctx context.Context, e Envelope) ([]byte, error) {
	data, inline := e.Payload.Inline()
	if inline {
		return data, nil
	}
	ref := e.Payload.Ref()
	if ref.Size > MaxPayload {
		return nil, fmt.Errorf("%w: it has %d bytes; at most %d are allowed", ErrPayload, ref.Size, MaxPayload)
	}
	_, data, err := p.blobs.Get(ctx, blobName(e.ID, ref, e.Again), ref.Size)
	switch {
	case blobs.IsMissing(err):
		return nil, fmt.Errorf("%w: its blob %s is missing", ErrPayload, blobName(e.ID, ref, e.Again))
	case errors.Is(err, blobs.ErrTooLarge), err == nil && (int64(len(data)) != ref.Size || hashOf(data) != ref.SHA256):
		return nil, errPayloadDiffers
	case err != nil:
		return nil, fmt.Errorf("load payload of job %s: %w", e.ID, err)
	}
	return data, nil
}

// Start returns the first most bytes of the envelope's payload, and its size. Of a payload in a
// blob the hash is not checked.
func (p *Payloads) Start(ctx context.Context, e Envelope, most int64) (start []byte, size int64, err error) {
	data, inline := e.Payload.Inline()
	if inline {
		return data[:min(int64(len(data)), most)], int64(len(data)), nil
	}
	ref := e.Payload.Ref()
	body, err := p.blobs.Open(ctx, blobName(e.ID, ref, e.Again), "", 0)
	if err == nil {
		defer func() { _ = body.Close() }()
		start, err = io.ReadAll(io.LimitReader(body, min(ref.Size, most)))
	}
	if err != nil {
		return nil, 0, fmt.Errorf("load payload of job %s: %w", e.ID, err)
	}
	return start, ref.Size, nil
}

// Find returns the payload of a job with those inputs by the hash and the number in its
// record ([Envelope.Work], [Envelope.Again]): the empty payload, or one in a blob. ok is false if there is no such
// blob: then the payload was in the message, and is gone with it.
func (p *Payloads) Find(ctx context.Context, id string, inputs []byte, work string, again int) (found Payload, ok bool, err error) {
	if found.isOf(inputs, work) {
		return found, true, nil
	}
	if len(inputs) > 0 {
		return p.search(ctx, id, inputs, work, again)
	}
	ref := &Ref{SHA256: work}
	blob, err := p.blobs.Find(ctx, blobName(id, ref, again))
	if blobs.IsMissing(err) {
		return Payload{}, false, nil
	}
	if err != nil {
		return Payload{}, false, fmt.Errorf("find the payload of job %s: %w", id, err)
	}
	ref.Size = blob.Size
	return Payload{ref: ref}, true, nil
}

// search looks for the payload among the blobs of the job, which are few. The hash in the
// record of a job with inputs does not name the blob.
func (p *Payloads) search(ctx context.Context, id string, inputs []byte, work string, again int) (Payload, bool, error) {
	folder := jobid.Path(id) + "/"
	for b, err := range p.blobs.List(ctx, folder, false) {
		if err != nil {
			return Payload{}, false, fmt.Errorf("find the payload of job %s: %w", id, err)
		}
		found := Payload{ref: &Ref{SHA256: strings.TrimSuffix(strings.TrimPrefix(b.Name, folder), suffix(again)), Size: b.Size}}
		if found.ref.validate() == nil && found.isOf(inputs, work) {
			return found, true, nil
		}
	}
	return Payload{}, false, nil
}

// isOf reports whether it is the payload of a job with those inputs, whose record has the
// hash work.
func (p Payload) isOf(inputs []byte, work string) bool {
	return Envelope{Payload: p, Inputs: inputs}.Work() == work
}

// Discard deletes the envelope's payload blob, if it has one.
func (p *Payloads) Discard(ctx context.Context, e Envelope) error {
	ref := e.Payload.Ref()
	if ref == nil {
		return nil
	}
	if _, err := p.blobs.Delete(ctx, blobName(e.ID, ref, e.Again), ""); err != nil {
		return fmt.Errorf("delete payload of job %s: %w", e.ID, err)
	}
	return nil
}

func blobName(id string, ref *Ref, again int) string {
	return jobid.Path(id) + "/" + ref.SHA256 + suffix(again)
}

// suffix ends the names of the payloads of a run that the job's owner asked for again.
func suffix(again int) string {
	if again == 0 {
		return ""
	}
	return "-" + strconv.Itoa(again)
}
