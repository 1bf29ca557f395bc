package outage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
)

// Kind is a kind of fault of the storage account.
type Kind int

// The kinds. A call that the service answered in any other way met none of them.
const (
	None        Kind = iota
	Unreachable      // no connection, no token, no answer in time, or an error of the service (5xx)
	Denied           // 401 and 403: a role, a network rule, a key or the account itself
	Missing          // the queue or container does not exist
	Throttled        // 429, and 503 ServerBusy: the service asks for fewer calls
)

// Unanswered is the error of a call that the service did not answer.
type Unanswered struct{ Err error }

func (e *Unanswered) Error() string { return e.Err.Error() }

// Unwrap returns the error of the network or of the sign-in.
func (e *Unanswered) Unwrap() error { return e.Err }

// Of returns the kind of fault that an error of a call shows. It is None if the call was
// cancelled, and for faults of a single blob or message.
func Of(err error) Kind {
	response, answered := errors.AsType[*azcore.ResponseError](err)
	_, unanswered := errors.AsType[*Unanswered](err)
	_, network := errors.AsType[net.Error](err)
	switch {
	case err == nil:
		return None
	case answered:
		return ofStatus(response.StatusCode, response.ErrorCode)
	case errors.Is(err, context.Canceled):
		return None
	case unanswered, network, errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.ErrUnexpectedEOF):
		return Unreachable
	default:
		return None
	}
}

// ofStatus returns the kind of fault that an answer shows.
func ofStatus(status int, code string) Kind {
	switch {
	case code == string(bloberror.ContainerNotFound), code == string(queueerror.QueueNotFound),
		code == string(bloberror.ContainerBeingDeleted), code == string(queueerror.QueueBeingDeleted):
		return Missing
	case code == string(bloberror.BlobBeingRehydrated), code == string(bloberror.BlobImmutableDueToPolicy):
		return None // of one blob, for any status
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return Denied
	case status == http.StatusTooManyRequests, code == string(bloberror.ServerBusy):
		return Throttled
	case status >= http.StatusInternalServerError:
		return Unreachable
	default:
		return None
	}
}

// Gist returns the call that failed and the reason, without the parts of an error's text
// that differ each time, such as request ids and ports.
func Gist(err error) string {
	tried, _, _ := strings.Cut(err.Error(), ": ")
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return tried + ": " + response.ErrorCode
	}
	return fmt.Sprint(tried, ": ", int(Of(err)))
}

// Level returns the level at which a failed call is logged where it was made: debug if
// its cause is a fault of the account, which a [Watch] reports for the whole worker.
func Level(err error, otherwise slog.Level) slog.Level {
	if Of(err) != None {
		return slog.LevelDebug
	}
	return otherwise
}
