package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/job"
)

// callTimeout is the timeout of one call, including the SDK's retries.
const callTimeout = 2 * time.Minute

// errChanged is the error of a blob that has changed since the job started.
var errChanged = errors.New("the blob changed while it was read")

// source is the blob that a job reads.
type source struct {
	name   string // for errors
	client *blob.Client
}

func newSource(c *container.Client, p payload) source {
	return source{name: fmt.Sprintf("blob %q in container %s", p.Blob, p.Container), client: c.NewBlobClient(p.Blob)}
}

// properties returns the blob's current ETag and its size in bytes.
func (s source) properties(ctx context.Context) (etag string, size int64, err error) {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := s.client.GetProperties(callCtx, nil)
	switch {
	case err != nil:
		return "", 0, explain(ctx, "read "+s.name, err)
	case reply.ETag == nil || *reply.ETag == "" || reply.ContentLength == nil:
		return "", 0, fmt.Errorf("read %s: the reply has no ETag or no length", s.name)
	}
	return string(*reply.ETag), *reply.ContentLength, nil
}

// read fills data with the blob's bytes from offset on. The error is errChanged if the
// blob has another ETag.
func (s source) read(ctx context.Context, data []byte, offset int64, etag string) error {
	if ctx.Err() != nil || len(data) == 0 {
		return context.Cause(ctx)
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	version := azcore.ETag(etag)
	reply, err := s.client.DownloadStream(callCtx, &blob.DownloadStreamOptions{
		Range:            blob.HTTPRange{Offset: offset, Count: int64(len(data))},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &version}},
	})
	switch {
	case bloberror.HasCode(err, bloberror.ConditionNotMet):
		return fmt.Errorf("read %s: %w", s.name, errChanged)
	case err != nil:
		return explain(ctx, "read "+s.name, err)
	}
	body := reply.NewRetryReader(callCtx, nil)
	defer func() { _ = body.Close() }()
	// A proxy that ignores ranges would send the blob from its start.
	if n := reply.ContentLength; n == nil || *n != int64(len(data)) {
		return fmt.Errorf("read %s: the reply for %d bytes at offset %d has another length", s.name, len(data), offset)
	}
	if _, err := io.ReadFull(body, data); err != nil {
		return explain(ctx, "read "+s.name, err)
	}
	return nil
}

// explain shortens an error of the SDK, which can be a page long, and tells the worker
// the consequence for the job. An error that no retry can fix is permanent. An
// unavailable service does not count against the job, which resumes later. A missing role
// counts, since it may stay missing.
func explain(ctx context.Context, doing string, err error) error {
	var response *azcore.ResponseError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.As(err, &response):
		line, _, _ := strings.Cut(err.Error(), "\n")
		return job.Unavailable(fmt.Errorf("%s: %s", doing, line))
	}
	short := fmt.Errorf("%s: the storage service answered %d %s", doing, response.StatusCode, response.ErrorCode)
	switch code := bloberror.Code(response.ErrorCode); {
	case response.StatusCode >= http.StatusInternalServerError, response.StatusCode == http.StatusTooManyRequests:
		return job.Unavailable(short)
	case response.StatusCode == http.StatusNotFound, code == bloberror.BlobArchived, code == bloberror.InvalidBlobOrBlock:
		return job.Permanent(short)
	}
	return short
}
