package queue

import (
	"errors"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
)

// ErrLost says that a message is no longer this lease's: another worker
// dequeued it, or it was deleted.
var ErrLost = errors.New("message is no longer held by this worker")

// ErrNotPoison says that a text is no poison message that this version reads.
var ErrNotPoison = errors.New("not a poison message")

// lost reports whether err is the service's way of saying that a pop receipt is
// stale: 400 PopReceiptMismatch or 404 MessageNotFound.
func lost(err error) bool {
	return queueerror.HasCode(err, queueerror.PopReceiptMismatch, queueerror.MessageNotFound)
}

// notFound reports whether err is 404 MessageNotFound.
func notFound(err error) bool { return queueerror.HasCode(err, queueerror.MessageNotFound) }

// Throttled reports whether err says that the service is busy: 503 or 429.
func Throttled(err error) bool {
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		return false
	}
	return response.StatusCode == http.StatusServiceUnavailable || response.StatusCode == http.StatusTooManyRequests
}
