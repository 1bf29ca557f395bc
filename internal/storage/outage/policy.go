package outage

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Call is a call to the storage account that has ended, its retries included.
type Call struct {
	Service   string // "blob" or "queue"
	Operation string // in the REST reference, such as PutBlob
	Begun     time.Time
	Ended     time.Time
	Fault     Kind
	Err       error // of a Fault

	address *url.URL
	reads   bool // a blob, or a list of blobs
	may     bool // fail: see Optional
}

type optional struct{}

// Optional returns a context for calls that may be denied or find nothing: their caller
// works without them, and logs that. A [Watch] ignores that answer.
func Optional(ctx context.Context) context.Context {
	return context.WithValue(ctx, optional{}, true)
}

// Policy reports how each call of a client ends, retries included, and marks the errors
// of calls without an answer as [Unanswered]. Calls that their caller cancelled are not
// reported: they show nothing.
type Policy struct {
	Service   string
	Operation func(*http.Request) string
	Report    func(Call) // optional
}

// Do implements [policy.Policy].
func (p Policy) Do(req *policy.Request) (*http.Response, error) {
	begun := time.Now()
	resp, err := req.Next()
	c := Call{Begun: begun}
	switch {
	case err != nil && errors.Is(req.Raw().Context().Err(), context.Canceled):
		return resp, err
	case err != nil:
		err = &Unanswered{err}
		c.Fault, c.Err = Of(err), err
	case resp.StatusCode >= http.StatusBadRequest:
		answer := &azcore.ResponseError{StatusCode: resp.StatusCode, ErrorCode: resp.Header.Get("x-ms-error-code")}
		if c.Fault = Of(answer); c.Fault != None {
			c.Err = answer
		}
	}
	if p.Report != nil {
		c.Service, c.Operation, c.address, c.Ended = p.Service, p.Operation(req.Raw()), req.Raw().URL, time.Now()
		c.may = req.Raw().Context().Value(optional{}) != nil
		c.reads = p.Service == "blob" && (req.Raw().Method == http.MethodGet || req.Raw().Method == http.MethodHead)
		p.Report(c)
	}
	return resp, err
}

// host returns the service and the account of a call. Accounts of an emulator have one
// host, and differ in the path.
func (c Call) host() string {
	if c.address == nil {
		return c.Service + " service"
	}
	if account, _, _ := strings.Cut(strings.TrimPrefix(c.address.Path, "/"), "/"); isEmulator(c.address.Hostname()) {
		return c.address.Host + "/" + account
	}
	return c.address.Host
}

// target returns the target of a call: "queue x", "container y", or the service.
func (c Call) target() string {
	if c.address == nil {
		return c.Service + " service"
	}
	parts := strings.Split(strings.Trim(c.address.Path, "/"), "/")
	if isEmulator(c.address.Hostname()) {
		parts = parts[1:] // the account
	}
	switch {
	case len(parts) == 0 || parts[0] == "":
		return c.Service + " service"
	case c.Service == "queue":
		return "queue " + parts[0]
	default:
		return "container " + parts[0]
	}
}

// isEmulator reports whether the account's name is in the path and not in the host, as
// the SDK decides it too.
func isEmulator(host string) bool {
	return host == "localhost" || net.ParseIP(host) != nil
}
