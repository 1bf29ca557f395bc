package blobref

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

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
				Answer(response), role)
		}
		explained := fmt.Errorf("%s: the storage service answered %s", doing, Answer(response))
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

// Answer returns the service's error code and status, in short.
func Answer(response *azcore.ResponseError) string {
	return fmt.Sprintf("%d %s", response.StatusCode, response.ErrorCode)
}
