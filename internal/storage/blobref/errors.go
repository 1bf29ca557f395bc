package blobref

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/spotworker/spotworker/job"
)

// Explain turns an error of the client, which can be a page long, into one line with a
// remedy. doing names the failed call, and role the role that the worker's identity needs
// for it.
//
// An unavailable service is not a failure of the job, which continues later. A missing
// role is a failure, since it may be missing for ever.
func Explain(ctx context.Context, doing, role string, err error) error {
	var response *azcore.ResponseError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &response):
		if response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden {
			return fmt.Errorf("%s: access denied (%s): the identity that the worker signs in with needs the role %s on that container", doing,
				answer(response), role)
		}
		explained := fmt.Errorf("%s: the storage service answered %s", doing, answer(response))
		if response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests {
			return job.Unavailable(explained)
		}
		return explained
	case errors.Is(err, context.DeadlineExceeded):
		return job.Unavailable(fmt.Errorf("%s: no answer in time: %w", doing, context.DeadlineExceeded))
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return job.Unavailable(fmt.Errorf("%s: %s", doing, strings.TrimSpace(line)))
}

// ErrChanged means that a blob has another version than the reader needs.
var ErrChanged = errors.New("it changed while it was read")

// ExplainRead is Explain for a read of the blob that what names. An error that no retry can fix is
// permanent.
func ExplainRead(ctx context.Context, what, role string, err error) error {
	var response *azcore.ResponseError
	if ctx.Err() == nil && errors.As(err, &response) {
		switch code := bloberror.Code(response.ErrorCode); {
		case response.StatusCode == http.StatusPreconditionFailed:
			return fmt.Errorf("read %s: %w", what, ErrChanged)
		case code == bloberror.ContainerNotFound:
			return job.Permanent(fmt.Errorf("%s: the container does not exist", what))
		case response.StatusCode == http.StatusNotFound:
			return job.Permanent(fmt.Errorf("%s does not exist: put it there and replay the job", what))
		case code == bloberror.BlobArchived, code == bloberror.BlobBeingRehydrated:
			return Archived(what)
		}
	}
	return Explain(ctx, "read "+what, role, err)
}

// Archived returns the error of a blob in the archive tier.
func Archived(what string) error {
	return job.Permanent(fmt.Errorf("%s is in the archive tier: rehydrate it and replay the job", what))
}

// answer returns the service's error code and status, in short.
func answer(response *azcore.ResponseError) string {
	return fmt.Sprintf("%d %s", response.StatusCode, response.ErrorCode)
}
