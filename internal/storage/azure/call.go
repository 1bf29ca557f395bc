package azure

import (
	"context"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/storage/hedge"
	"github.com/spotworker/spotworker/internal/storage/outage"
)

// Call describes one call to the storage account, for [AccountConfig].OnCall. Its fields
// have few different values, so that they can be labels of metrics.
type Call struct {
	// Service is "blob" or "queue".
	Service string

	// Operation is its name in the REST reference, without spaces, such as PutBlob;
	// [Other] for an operation that this program does not use.
	Operation string

	// Status is the class of the response, "2xx" to "5xx", [StatusDenied] for 401 and 403,
	// [StatusMissing] for 404 of a queue or container, "throttled" for 429 and 503, and
	// "unanswered" if there was none.
	Status string

	// Answered says that the service dealt with the call, also if it refused it: the
	// status is neither "5xx" nor "unanswered".
	Answered bool

	// Date is the service's clock as the response has it; empty if there was none. It
	// is no label.
	Date string

	// Throttled says that the service refused the call because calls come too fast: with
	// 429 or 503, or with 500 OperationTimedOut.
	Throttled bool

	// Queue is the name of the queue that a throttled call was about, which is no label:
	// a program may use any. Empty for other calls.
	Queue string

	// Failed says that the service did not answer, had an error, denied access, has no such
	// queue or container, or refused the call because calls come too fast. A call that its caller has cancelled did not fail.
	Failed bool

	// Took is the time until the header of the response.
	Took time.Duration
}

// IsSmall reports whether the request and the response are small in any case, so that the
// time of the call shows how soon the service answers.
func (c Call) IsSmall() bool { return !slices.Contains(Large, c.Operation) }

// Large are the operations that may send or list much.
var Large = []string{"PutBlob", "PutBlock", "PutBlockList", "GetBlob", "ListBlobs"}

// Other is the operation of a call without a name of its own.
const Other = "Other"

// The services of a storage account.
const (
	blobService  = "blob"
	queueService = "queue"
)

// watched returns the options of a service's client that reports its calls to OnCall and
// OnEnd, and limits the time of each try.
func (c AccountConfig) watched(options policy.ClientOptions, service string) policy.ClientOptions {
	calls := []policy.Policy{outage.Policy{
		Service: service, Operation: func(r *http.Request) string { return operationOf(service, r) }, Report: c.OnEnd,
	}}
	if service == queueService {
		options.Retry.TryTimeout = 0 // package queue limits whole calls to less
	}
	options.PerCallPolicies = append(calls, options.PerCallPolicies...)
	limits, options := bounded(options)
	last := policy.Policy(limits)
	if c.OnCall != nil {
		last = watcher{service, c.OnCall, limits}
	}
	options.PerRetryPolicies = append(slices.Clip(options.PerRetryPolicies), last)
	return options
}

// watcher is a policy that reports each call, and each retry. It calls the last policy
// itself, since the SDK copies the request for each policy.
type watcher struct {
	service string
	report  func(Call)
	last    hedge.Policy
}

// Do implements [policy.Policy].
func (w watcher) Do(req *policy.Request) (*http.Response, error) {
	begun, ctx := time.Now(), req.Raw().Context() // the limits give a try a context of its own
	resp, err := w.last.Do(req)
	c := Call{Service: w.service, Operation: operationOf(w.service, req.Raw()), Status: statusOf(resp), Throttled: isThrottled(resp),
		Took: time.Since(begun)}
	c.Answered = c.Status != "5xx" && c.Status != "unanswered"
	cancelled := errors.Is(ctx.Err(), context.Canceled)
	c.Failed = !cancelled && (!c.Answered || c.Throttled || c.Status == StatusDenied || c.Status == StatusMissing)
	if resp != nil {
		c.Date = resp.Header.Get("Date")
	}
	if c.Throttled && w.service == queueService {
		c.Queue = queueOf(req.Raw().URL.Path)
	}
	w.report(c)
	return resp, err
}

// The statuses of a call without the right to it, and of a call to a queue or container that
// does not exist.
const (
	StatusDenied  = "denied"
	StatusMissing = "missing"
)

// missing are the error codes of a queue or container that does not exist, or is being deleted.
var missing = []string{"ContainerNotFound", "ContainerBeingDeleted", "QueueNotFound", "QueueBeingDeleted"}

// isThrottled reports whether a call was refused because calls come too fast.
func isThrottled(resp *http.Response) bool {
	return statusOf(resp) == "throttled" ||
		resp != nil && resp.StatusCode == http.StatusInternalServerError && resp.Header.Get("x-ms-error-code") == operationTimedOut
}

// operationTimedOut is the error code of a call that the service had no time for.
const operationTimedOut = "OperationTimedOut"

// queueOf returns the name of the queue that a path is about: …/QUEUE, …/QUEUE/messages
// or …/QUEUE/messages/ID.
func queueOf(p string) string {
	if i := strings.LastIndex(p, "/messages"); i > 0 {
		p = p[:i]
	}
	return path.Base(p)
}

func statusOf(resp *http.Response) string {
	switch {
	case resp == nil:
		return "unanswered"
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable:
		return "throttled"
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		return StatusDenied
	case resp.StatusCode >= 400 && slices.Contains(missing, resp.Header.Get("x-ms-error-code")):
		return StatusMissing
	case resp.StatusCode < 300:
		return "2xx"
	case resp.StatusCode < 400:
		return "3xx"
	case resp.StatusCode < 500:
		return "4xx"
	default:
		return "5xx"
	}
}

// operationOf names the operation of a request. The REST reference tells them
// apart by method, level and query.
func operationOf(service string, r *http.Request) string {
	key := r.Method + " " + parameter(r.URL.RawQuery, "comp")
	table := blobOperations
	switch {
	case service == queueService:
		return queueOperation(r, key)
	case parameter(r.URL.RawQuery, "restype") == "container":
		table = containerOperations
	}
	return named(table, key)
}

// queueOperation looks at the end of the path: …/QUEUE, …/QUEUE/messages or
// …/QUEUE/messages/ID.
func queueOperation(r *http.Request, key string) string {
	parent, last := path.Split(r.URL.Path)
	name := named(messagesOperations, key)
	switch {
	case last == "messages" && name == "GetMessages" && parameter(r.URL.RawQuery, "peekonly") == "true":
		return "PeekMessages"
	case last == "messages" && name != Other:
		return name
	case strings.HasSuffix(parent, "/messages/"):
		return named(messageOperations, key)
	default:
		return named(queueOperations, key)
	}
}

func named(table map[string]string, key string) string {
	if name := table[key]; name != "" {
		return name
	}
	return Other
}

// Operations by method and comp ("Operations on blobs", "… containers", "…
// queues" and "… messages" of the storage REST reference).
var (
	blobOperations = map[string]string{
		"PUT ": "PutBlob", "GET ": "GetBlob", "HEAD ": "GetBlobProperties", "DELETE ": "DeleteBlob",
		"PUT block": "PutBlock", "PUT blocklist": "PutBlockList", "GET blocklist": "GetBlockList",
		"PUT metadata": "SetBlobMetadata", "GET metadata": "GetBlobMetadata", "HEAD metadata": "GetBlobMetadata",
		"GET list": "ListContainers",
	}
	containerOperations = map[string]string{
		"PUT ": "CreateContainer", "GET ": "GetContainerProperties", "HEAD ": "GetContainerProperties",
		"DELETE ": "DeleteContainer", "GET list": "ListBlobs",
	}
	queueOperations = map[string]string{
		"PUT ": "CreateQueue", "DELETE ": "DeleteQueue", "GET list": "ListQueues",
		"GET metadata": "GetQueueMetadata", "HEAD metadata": "GetQueueMetadata", "PUT metadata": "SetQueueMetadata",
	}
	messagesOperations = map[string]string{"GET ": "GetMessages", "POST ": "PutMessage", "DELETE ": "ClearMessages"}
	messageOperations  = map[string]string{"PUT ": "UpdateMessage", "DELETE ": "DeleteMessage"}
)

// parameter returns the first value of a query's parameter, undecoded. It runs for
// every call, and so allocates nothing.
func parameter(query, name string) string {
	for pair := range strings.SplitSeq(query, "&") {
		if key, value, _ := strings.Cut(pair, "="); key == name {
			return value
		}
	}
	return ""
}
