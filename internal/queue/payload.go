package queue

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
