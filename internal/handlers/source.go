package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/storage/blobref"
	"github.com/spotworker/spotworker/job"
)

// Timeouts of one call, including the SDK's retries.
const (
	lookTimeout = 30 * time.Second

	// rangeTimeout is for one range. An attempt that the client cuts short within it
	// loses nothing: the SDK's reader requests the rest of the range.
	rangeTimeout = 2 * time.Minute
)

// errChanged is the error of a blob that has changed since the job started.
var errChanged = errors.New("blob changed while it was read")

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

// read fills data with the blob's bytes from offset on. The error is errChanged if the
// blob has another ETag.
func (b *source) read(ctx context.Context, data []byte, offset int64, etag azcore.ETag) error {
	callCtx, cancel := context.WithTimeout(ctx, rangeTimeout)
	defer cancel()
	reply, err := b.client.DownloadStream(callCtx, &blob.DownloadStreamOptions{
		Range:            blob.HTTPRange{Offset: offset, Count: int64(len(data))},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag}},
	})
	if err != nil {
		return b.explain(ctx, err)
	}
	body := reply.NewRetryReader(callCtx, nil)
	defer func() { _ = body.Close() }()
	// A proxy that ignores ranges would send the blob from its start.
	if n := reply.ContentLength; n == nil || *n != int64(len(data)) {
		return fmt.Errorf("read %s: the reply to a request for %d bytes at offset %d is not of that length", b, len(data), offset)
	}
	if _, err := io.ReadFull(body, data); err != nil {
		return b.explain(ctx, err)
	}
	return nil
}

// explain translates an error of the client. An error that no retry can fix is permanent.
func (b *source) explain(ctx context.Context, err error) error {
	var response *azcore.ResponseError
	if ctx.Err() == nil && errors.As(err, &response) {
		switch code := bloberror.Code(response.ErrorCode); {
		case response.StatusCode == http.StatusPreconditionFailed:
			return fmt.Errorf("read %s: %w", b, errChanged)
		case code == bloberror.ContainerNotFound:
			return job.Permanent(fmt.Errorf("container %s does not exist", b.container))
		case response.StatusCode == http.StatusNotFound:
			return job.Permanent(fmt.Errorf("%s does not exist", b))
		case code == bloberror.BlobArchived, code == bloberror.BlobBeingRehydrated:
			return job.Permanent(fmt.Errorf("%s is in the archive tier (%s): rehydrate it and replay the job", b, blobref.Answer(response)))
		}
	}
	return blobref.Explain(ctx, "read "+b.String(), "Storage Blob Data Reader", err)
}
