package queue

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// PutAgain puts the text of a message that nobody could read once more, as it
// was: a worker of another version may be able to.
func (q *Queue) PutAgain(ctx context.Context, text string) error { return q.putText(ctx, text, 0) }

// Original returns the text of the message that p stands for, from p or from its
// blob. The error wraps [ErrPayload] when the blob is missing or is not one that
// p may name.
func (p Poison) Original(ctx context.Context, payloads *Payloads) (string, error) {
	if p.BodyBlob == "" {
		return p.Body, nil
	}
	if err := p.checkBlob(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	text, err := payloads.getAtMost(ctx, p.BodyBlob, MaxText)
	switch {
	case bloberror.HasCode(err, bloberror.BlobNotFound):
		return "", fmt.Errorf("%w: the blob %s with the message's text is missing", ErrPayload, p.BodyBlob)
	case err != nil:
		return "", fmt.Errorf("load text of poison message %s: %w", p.MessageID, err)
	case len(text) > MaxText:
		return "", fmt.Errorf("%w: the blob %s has more bytes than a message", ErrPayload, p.BodyBlob)
	}
	return string(text), nil
}

// DiscardOriginal deletes the blob with the text, if there is one. The poison
// message must be gone before: it is worth nothing without it.
func (p Poison) DiscardOriginal(ctx context.Context, payloads *Payloads) error {
	if p.BodyBlob == "" || p.checkBlob() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := payloads.container.NewBlobClient(p.BodyBlob).Delete(ctx, nil)
	if err != nil && !bloberror.HasCode(err, bloberror.BlobNotFound) {
		return fmt.Errorf("delete text of poison message %s: %w", p.MessageID, err)
	}
	return nil
}

// maxMessageID is the longest id of a message that is believed, in bytes. The
// service's are GUIDs.
const maxMessageID = 64

// checkBlob keeps a message that somebody made up from naming a job's payload.
func (p Poison) checkBlob() error {
	if p.MessageID == "" || len(p.MessageID) > maxMessageID {
		return fmt.Errorf("%w: it names a blob, and no message of which that could be", ErrPayload)
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
