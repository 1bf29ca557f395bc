package handlers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/storage/blobref"
	"github.com/spotworker/spotworker/internal/storage/blobs"
	"github.com/spotworker/spotworker/job"
)

// lookTimeout bounds a call without a body, the SDK's retries included.
const lookTimeout = 30 * time.Second

// source is the blob that a job reads.
type source struct {
	blobName
	client *blob.Client
}

// openSource makes no request.
func openSource(containers func(name string) *container.Client, name blobName) (*source, error) {
	client := containers(name.container).NewBlobClient(name.blob)
	if name.version != "" {
		var err error
		if client, err = client.WithVersionID(name.version); err != nil {
			return nil, job.Permanent(fmt.Errorf("payload: field version: %w", err))
		}
	}
	return &source{blobName: name, client: client}, nil
}

// properties returns the blob's current ETag and its size in bytes.
func (b *source) properties(ctx context.Context) (azcore.ETag, int64, error) {
	callCtx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	reply, err := b.client.GetProperties(callCtx, nil)
	switch {
	case err != nil:
		return "", 0, b.explain(ctx, err)
	case reply.ETag == nil || *reply.ETag == "" || reply.ContentLength == nil:
		return "", 0, fmt.Errorf("read %s: the reply has no ETag or no length", b)
	}
	return *reply.ETag, *reply.ContentLength, nil
}

// read fills data with the blob's bytes from offset on. The error is [blobref.ErrChanged] if the
// blob has another ETag.
func (b *source) read(ctx context.Context, data []byte, offset int64, etag azcore.ETag) error {
	err := blobs.ReadRange(ctx, b.client, etag, data, offset)
	if _, odd := errors.AsType[*blobs.LengthError](err); odd {
		return fmt.Errorf("read %s: %w", b, err)
	}
	if err != nil {
		return b.explain(ctx, err)
	}
	return nil
}

// explain translates an error of the client. An error that no retry can fix is permanent.
func (b *source) explain(ctx context.Context, err error) error {
	return blobref.ExplainRead(ctx, b.String(), "Storage Blob Data Reader", err)
}
