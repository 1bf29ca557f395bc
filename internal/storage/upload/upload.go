// Package upload streams a content of any size into a block blob: in blocks of bounded
// memory, hashed on the way, and ended if it makes no progress.
package upload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"path"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
)

const (
	// BlockSize is the length of a block in bytes, for contents up to Largest.
	BlockSize = 4 << 20

	// Parallel is how many blocks of one content are sent at once.
	Parallel = 4

	// mostBlocks is the service's limit on the blocks of a blob.
	mostBlocks = 50_000

	// Largest is the length of the largest content of unknown length, in bytes.
	Largest = mostBlocks * BlockSize

	// stallTimeout bounds the time in which an upload neither reads nor ends: the time of
	// one block, retries included.
	stallTimeout = time.Minute

	// settleTimeout bounds the call that finds out whose an existing blob is.
	settleTimeout = 20 * time.Second
)

// tokenKey is the metadata of a blob that has the token of its upload.
const tokenKey = "spotworkertoken"

// Errors of an upload.
var (
	// ErrTaken means that the blob exists, and has another token.
	ErrTaken = errors.New("the blob exists already, and is another upload's")

	errStalled = fmt.Errorf("no progress in %s", stallTimeout)
)

// ReadError is the error of a content that cannot be read while it is sent.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }

// Unwrap returns why.
func (e *ReadError) Unwrap() error { return e.Err }

// TooLargeError is the error of a content that is longer than Most bytes.
type TooLargeError struct{ Most int64 }

func (e *TooLargeError) Error() string { return fmt.Sprintf("it has more than %d GiB", e.Most>>30) }

// Options describe an upload.
type Options struct {
	// Size is the expected length of the content in bytes, -1 if it is not known.
	Size int64

	// Type is the blob's content type.
	Type string

	// Token identifies the upload. A blob with this token is the same upload, whose answer
	// was lost.
	Token string

	// Replace replaces a blob that exists.
	Replace bool
}

// InOnePiece reports whether a content of that size is sent by one call.
func InOnePiece(size int64) bool { return size >= 0 && size < BlockSize }

// blockSize returns the length of a block, so that the content has at most [mostBlocks].
func (o Options) blockSize() int64 {
	if InOnePiece(o.Size) {
		return o.Size + 1 // a content that has more is noticed
	}
	return max(BlockSize, (o.Size+mostBlocks-1)/mostBlocks)
}

// Sent describes a blob that was sent.
type Sent struct {
	Size   int64
	SHA256 string // lower-case hex
	ETag   azcore.ETag
}

// Send writes the content into a blob, which must not exist unless o.Replace is set. The
// error is [ErrTaken] if it does, a [*ReadError] if the content cannot be read, and then a
// [*TooLargeError] within if it is too long.
func Send(ctx context.Context, b *blockblob.Client, content io.Reader, o Options) (Sent, error) {
	body := &hashing{from: content, hash: sha256.New(), most: o.blockSize() * mostBlocks}
	concurrency := Parallel
	if InOnePiece(o.Size) {
		concurrency, body.most = 1, Largest
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body.progress = time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer body.progress.Stop()
	options := &blockblob.UploadStreamOptions{
		BlockSize: o.blockSize(), Concurrency: concurrency,
		HTTPHeaders: &blob.HTTPHeaders{BlobContentType: &o.Type},
		Metadata:    map[string]*string{tokenKey: &o.Token},
	}
	if !o.Replace {
		options.AccessConditions = &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)},
		}
	}
	reply, err := b.UploadStream(ctx, body, options)
	sent := Sent{Size: body.size, SHA256: hex.EncodeToString(body.hash.Sum(nil))}
	switch {
	case body.err != nil:
		return Sent{}, &ReadError{body.err}
	case bloberror.HasCode(err, bloberror.BlobAlreadyExists):
		sent.ETag, err = settle(ctx, b, o.Token, sent.Size)
	case err == nil && reply.ETag != nil:
		sent.ETag = *reply.ETag
	case errors.Is(context.Cause(ctx), errStalled):
		err = errStalled
	}
	if err != nil {
		return Sent{}, err
	}
	return sent, nil
}

// settle finds out whether the existing blob is of the upload with that token.
func settle(ctx context.Context, b *blockblob.Client, token string, size int64) (azcore.ETag, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	reply, err := b.GetProperties(ctx, nil)
	if err != nil {
		return "", err
	}
	for key, found := range reply.Metadata {
		if strings.EqualFold(key, tokenKey) && found != nil && *found == token && reply.ContentLength != nil && *reply.ContentLength == size &&
			reply.ETag != nil {
			return *reply.ETag, nil
		}
	}
	return "", ErrTaken
}

// hashing hashes the bytes that are read of a content.
type hashing struct {
	from     io.Reader
	hash     hash.Hash
	most     int64 // bytes
	size     int64
	err      error // of reading, other than its end
	progress *time.Timer
}

func (h *hashing) Read(p []byte) (int, error) {
	h.progress.Reset(stallTimeout)
	n, err := h.from.Read(p)
	_, _ = h.hash.Write(p[:n]) // never fails
	if h.size += int64(n); h.size > h.most && err == nil {
		err = &TooLargeError{h.most}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		h.err = err
	}
	return n, err
}

// TypeOf returns the content type of a file, by its extension.
func TypeOf(name string) string {
	if known := mime.TypeByExtension(strings.ToLower(path.Ext(name))); known != "" {
		return known
	}
	return "application/octet-stream"
}
