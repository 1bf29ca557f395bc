package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// The errors that a program may want to tell apart, with [errors.Is]. All others come
// from the network and the storage service.
var (
	// ErrNotFound means that the job has no record: no worker has claimed it yet, or this
	// deployment has no job with the id.
	ErrNotFound = errors.New("there is no record of this job: no worker has claimed it yet, or there is no such job in this deployment")

	// ErrNotFinished means that the job has not ended: it has no result yet, and cannot be put again.
	ErrNotFinished = checkpoint.ErrNotEnded

	// ErrPoison means that the job was dead-lettered. The error is an [*EndedError] with the
	// reason.
	ErrPoison = errors.New("the job was dead-lettered")

	// ErrCancelled means that an operator cancelled the job. The error is an
	// [*EndedError] with the reason.
	ErrCancelled = errors.New("the job was cancelled")

	// ErrOtherWork means that the job's id was used before, for another kind, payload or
	// inputs.
	ErrOtherWork = checkpoint.ErrOtherWork

	// ErrOtherGroup means that the job's id was put before, in another group or in none.
	ErrOtherGroup = checkpoint.ErrOtherGroup

	// ErrNewerVersion means that the record was written by a newer version of
	// spotworker, or by another program: this version neither reads nor changes it.
	ErrNewerVersion = errors.New("its record is of a newer version: use a newer version of this program")

	// ErrControlDamaged means that the control document, which has what operators ask of
	// workers, cannot be read. [SteerOptions].Reset replaces it.
	ErrControlDamaged = errors.New("workers keep to what they read last; \"spotctl resume --all --reset\", or another such " +
		"command with --reset, replaces it, which ends all pauses, drains and quarantines, and keeps a copy")

	// ErrDenied means that the account refuses the call. The error is a [*DeniedError].
	ErrDenied = errors.New("access denied")

	// ErrNoDeployment means that the account has no such queue or container: it is the
	// wrong account or prefix, or nothing was put there yet.
	ErrNoDeployment = errors.New("there is no such deployment")

	// ErrNoWorker means that no worker of that name has written a heartbeat.
	ErrNoWorker = errors.New("there is no heartbeat of this worker")

	// ErrNotFollowed means that workers did not follow a request in time.
	ErrNotFollowed = operate.ErrNotFollowed

	// ErrNotPoison means that the poison queue has no message of that job, and none of
	// that id.
	ErrNotPoison = errors.New("the poison queue has no message of it")

	// ErrNoAccount means that there is no storage account of that name.
	ErrNoAccount = errors.New("there is no such storage account")
)

// EndedError is why a job that has ended has no result.
type EndedError struct{ Job Job }

// Error names the job, its status and the reason.
func (e *EndedError) Error() string {
	reason := e.Job.Reason
	if reason == "" {
		reason = "no reason given"
	}
	return fmt.Sprintf("job %s is %s: %s", e.Job.ID, e.Job.Status, reason)
}

// Is reports whether target is [ErrPoison] or [ErrCancelled], as the job's status says.
func (e *EndedError) Is(target error) bool {
	return target == ErrPoison && e.Job.Status == StatusPoison || target == ErrCancelled && e.Job.Status == StatusCancelled
}

// UnknownKindError says that no live worker of a queue has a handler for a kind. Workers is how many
// live workers take from the queue, and Kinds are their kinds.
type UnknownKindError = producer.UnknownKindError

// DeniedError is a refusal of the storage account.
type DeniedError struct {
	// Role is the role that the identity lacks, for a queue or container of the
	// deployment. It is empty if the refusal has another reason, such as a wrong key or
	// the account's network rules.
	Role string

	// Err is the service's answer.
	Err error
}

// Error names the refused operation and the reason.
func (e *DeniedError) Error() string { return azure.ExplainRole(e.Err, e.Role) }

// Is reports whether target is [ErrDenied].
func (e *DeniedError) Is(target error) bool { return target == ErrDenied }

// Unwrap returns the service's answer.
func (e *DeniedError) Unwrap() error { return e.Err }

// serviceError is an error of the storage service or the network in one line.
type serviceError struct {
	kind error // one of this package's, or nil
	text string
	err  error
}

func (e *serviceError) Error() string { return e.text }

func (e *serviceError) Is(target error) bool { return target == e.kind } // errors.Is has no nil target

func (e *serviceError) Unwrap() error { return e.err }

// need are the roles that an operation needs, the least one for each service.
type need struct{ blobs, queues string }

// The roles that the operations need.
var (
	toRead  = need{"Storage Blob Data Reader", "Storage Queue Data Reader"}
	toPut   = need{"Storage Blob Data Contributor", "Storage Queue Data Message Sender"}
	toWrite = need{"Storage Blob Data Contributor", "Storage Queue Data Contributor"}
)

// role returns the role for the service that a refused call was for.
func (c *Client) role(refused *azcore.ResponseError, n need) string {
	if r := refused.RawResponse; r != nil && r.Request != nil && r.Request.URL.Host == c.stores.Account.Host() {
		return n.blobs
	}
	return n.queues
}

// failure returns the cause if ctx has ended, and otherwise err as readable does.
func (c *Client) failure(ctx context.Context, err error, n need) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return c.readable(err, n)
}

// readable translates an error of the storage service into one of this package.
func (c *Client) readable(err error, n need) error {
	var response *azcore.ResponseError
	var dns *net.DNSError
	var unknown *UnknownKindError
	kind, hint := error(nil), ""
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown):
		return unknown
	case errors.As(err, new(*control.DamagedError)):
		return fmt.Errorf("%w; %w", err, ErrControlDamaged)
	case errors.Is(err, checkpoint.ErrUnknownFormat):
		return fmt.Errorf("%w: %w", ErrNewerVersion, err)
	case bloberror.HasCode(err, bloberror.ContainerNotFound), queueerror.HasCode(err, queueerror.QueueNotFound):
		kind, hint = ErrNoDeployment, fmt.Sprintf("; or %s is not the right account, or the prefix of its names another", c.stores.Account.Host())
	case errors.As(err, &response) && (response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnauthorized):
		denied := &DeniedError{Err: err}
		if azure.LacksRole(err) {
			denied.Role = c.role(response, n)
		}
		return denied
	case errors.As(err, &dns) && dns.IsNotFound:
		kind = ErrNoAccount
	case response == nil && dns == nil:
		return err
	}
	return &serviceError{kind: kind, text: azure.Explain(err) + hint, err: err}
}
