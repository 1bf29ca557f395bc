package queue

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/storage/blobs"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// maxReason limits the reason of a poison message, in bytes.
const maxReason = 2 << 10

// ErrNotPoison means that the text is not a poison message that this version can read.
var ErrNotPoison = errors.New("not a poison message")

// Poison is a message on the poison queue: a dead-lettered job message with the
// reason. docs/FORMATS.md has its JSON.
type Poison struct {
	V          int       `json:"v"`
	ID         string    `json:"id,omitempty"`   // the job's id, if it is known
	Kind       string    `json:"kind,omitempty"` // the job's kind, if it is known
	Reason     string    `json:"reason"`
	PoisonedAt time.Time `json:"poisoned_at"`
	Worker     string    `json:"worker"`
	Origin     string    `json:"origin"`     // the queue it came from
	MessageID  string    `json:"message_id"` // the original message's id

	// Body is the original message's text. If it does not fit, it is stored in the
	// payload container instead, under the name BodyBlob.
	Body     string `json:"body,omitempty"`
	BodyBlob string `json:"body_blob,omitempty"`
}

// PutPoison puts p on q, the poison queue. The caller deletes the original message
// only afterwards. Repeating both after a crash makes a second poison message, which
// is harmless.
func (q *Queue) PutPoison(ctx context.Context, p Poison, payloads *Payloads) error {
	p.V = Version
	p.Reason = cut(p.Reason, maxReason)
	text, err := p.encode()
	if _, ok := errors.AsType[*TooLargeError](err); ok {
		name := bodyBlob(p.MessageID)
		if err := payloads.blobs.Create(ctx, name, []byte(p.Body), ""); err != nil {
			return fmt.Errorf("store body of poison message %s: %w", p.MessageID, err)
		}
		p.Body, p.BodyBlob = "", name
		text, err = p.encode()
	}
	if err != nil {
		return err
	}
	return q.putText(ctx, text, 0)
}

func (p Poison) encode() (string, error) {
	raw, err := marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode poison message: %w", err)
	}
	if len(raw) > maxJSON {
		return "", &TooLargeError{Size: len(raw), Limit: maxJSON}
	}
	return base64.StdEncoding.EncodeToString(raw), nil
}

// DecodePoison reads a poison message's text. The error wraps [ErrNotPoison] if this
// version cannot read it.
func DecodePoison(text string) (Poison, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return Poison{}, fmt.Errorf("%w: it is not base64: %w", ErrNotPoison, err)
	}
	p, err := decodePoison(raw)
	if err != nil {
		return Poison{}, fmt.Errorf("%w: it cannot be read: %s", ErrNotPoison, cut(err.Error(), maxInvalid))
	}
	if p.V != Version || p.PoisonedAt.IsZero() {
		return Poison{}, fmt.Errorf("%w of version %d", ErrNotPoison, Version)
	}
	return p, nil
}

// decodePoison reads the fields by their exact names, since encoding/json ignores
// case.
func decodePoison(raw []byte) (p Poison, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return p, err
	}
	for name, target := range map[string]any{
		"v": &p.V, "id": &p.ID, "kind": &p.Kind, "reason": &p.Reason, "poisoned_at": &p.PoisonedAt, "worker": &p.Worker,
		"origin": &p.Origin, "message_id": &p.MessageID, "body": &p.Body, "body_blob": &p.BodyBlob,
	} {
		value, ok := fields[name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(value, target); err != nil {
			return p, fmt.Errorf("field %s: %w", name, err)
		}
	}
	return p, nil
}

// cut shortens s to at most limit bytes of valid UTF-8.
func cut(s string, limit int) string {
	return plaintext.Middle(strings.ToValidUTF8(s, "\uFFFD"), limit)
}

// PutUnchanged puts the text of a message that could not be decoded on the queue
// again: a worker of another version may be able to decode it.
func (q *Queue) PutUnchanged(ctx context.Context, text string) error { return q.putText(ctx, text, 0) }

// Original returns the text of the original message, from p or from its blob. The error
// wraps [ErrPayload] if the blob is missing or p may not name it.
func (p Poison) Original(ctx context.Context, payloads *Payloads) (string, error) {
	if p.BodyBlob == "" {
		return p.Body, nil
	}
	if err := p.checkBlob(); err != nil {
		return "", err
	}
	_, text, err := payloads.blobs.Get(ctx, p.BodyBlob, MaxText)
	switch {
	case blobs.IsMissing(err):
		return "", fmt.Errorf("%w: the blob %s with the message's text is missing", ErrPayload, p.BodyBlob)
	case errors.Is(err, blobs.ErrTooLarge):
		return "", fmt.Errorf("%w: the blob %s has more bytes than a message", ErrPayload, p.BodyBlob)
	case err != nil:
		return "", fmt.Errorf("load text of poison message %s: %w", p.MessageID, err)
	}
	return string(text), nil
}

// DiscardOriginal deletes the blob with the original text, if there is one. The
// caller deletes the poison message first: it is useless without its text.
func (p Poison) DiscardOriginal(ctx context.Context, payloads *Payloads) error {
	if p.checkBlob() != nil {
		return nil //nolint:nilerr // there is none
	}
	if _, err := payloads.blobs.Delete(ctx, p.BodyBlob, ""); err != nil {
		return fmt.Errorf("delete text of poison message %s: %w", p.MessageID, err)
	}
	return nil
}

// maxMessageID is the longest message id that is accepted, in bytes. The service's
// ids are GUIDs.
const maxMessageID = 64

// checkBlob prevents a forged message from naming a job's payload blob.
func (p Poison) checkBlob() error {
	if p.MessageID == "" || len(p.MessageID) > maxMessageID {
		return fmt.Errorf("%w: it names a blob, but no original message", ErrPayload)
	}
	for _, c := range p.MessageID {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-') {
			return fmt.Errorf("%w: %q is no message id", ErrPayload, cut(p.MessageID, maxInvalid))
		}
	}
	if p.BodyBlob != bodyBlob(p.MessageID) {
		return fmt.Errorf("%w: the blob %q is not this message's", ErrPayload, cut(p.BodyBlob, maxInvalid))
	}
	return nil
}

func bodyBlob(messageID string) string { return "poison/" + messageID }
