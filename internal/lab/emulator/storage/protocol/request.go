package protocol

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/link"
)

// Headers of requests and replies.
const (
	HeaderErrorCode       = "x-ms-error-code"
	HeaderRequestID       = "x-ms-request-id"
	HeaderClientRequestID = "x-ms-client-request-id"
	HeaderVersion         = "x-ms-version"
	HeaderDate            = "x-ms-date"
)

// Request is an HTTP request with its path parsed:
// /<account>/<resource>/<rest>. Header keys are in canonical form.
type Request struct {
	*http.Request
	Service  Service
	Account  string
	Resource string // queue or container, empty at account level
	Rest     string // blob name, or "messages[/<id>]"
	Query    url.Values
	Data     []byte
	// principal is the object id of the identity whose token the request has.
	Principal string
	// now is the instant of the effect: reply's Date, Last-Modified, and the
	// start of every timeout.
	Now time.Time
	// Pages draws the pages of a listing; nil draws full pages.
	Pages *Pages
}

// NewRequest parses raw. With an error the request can still be replied to and
// counted.
func NewRequest(service Service, raw *http.Request) (*Request, error) {
	r := &Request{Request: raw, Service: service, Query: url.Values{}}
	query, err := url.ParseQuery(raw.URL.RawQuery)
	if err != nil {
		return r, ErrInvalidURI.Because("query: %v", err)
	}
	r.Query = query
	parts := strings.SplitN(strings.TrimPrefix(raw.URL.EscapedPath(), "/"), "/", 3)
	for i, to := range []*string{&r.Account, &r.Resource, &r.Rest} {
		if i >= len(parts) {
			break
		}
		if *to, err = url.PathUnescape(parts[i]); err != nil {
			return r, ErrInvalidURI.Because("path: %v", err)
		}
	}
	return r, nil
}

// MessageID is the id in .../messages/<id>, or empty.
func (r *Request) MessageID() string {
	id, _ := strings.CutPrefix(r.Rest, "messages/")
	if id == r.Rest {
		return ""
	}
	return id
}

// ReadBody reads the whole body, at most limit bytes, at the pace of its flow.
// It fails as soon as the request's context ends.
//
// A body from a socket is read at once, and its arrival is paced after that: the
// bytes would be in the buffers of both kernels anyway, and net/http notices a
// client that has gone only once it has read the body.
func (r *Request) ReadBody(limit int64, f *link.Flow) error {
	switch {
	case r.ContentLength > limit:
		return ErrBodyTooLarge.Because("%d bytes, at most %d", r.ContentLength, limit)
	case r.ContentLength < 0:
		return errNoContentLength
	case r.ContentLength == 0 || r.Body == nil:
		return nil
	}
	r.Data = make([]byte, r.ContentLength)
	have := 0
	if r.overSocket() {
		have = len(r.Data)
		if _, err := io.ReadFull(r.Body, r.Data); err != nil {
			return fmt.Errorf("read request body: %w", err)
		}
	}
	for passed := 0; passed < len(r.Data); {
		n, ok := f.Pass(r.Context(), len(r.Data)-passed)
		if !ok {
			return context.Cause(r.Context())
		}
		passed += n
		if passed <= have {
			continue
		}
		if _, err := io.ReadFull(r.Body, r.Data[passed-n:passed]); err != nil {
			return fmt.Errorf("read request body: %w", err)
		}
	}
	return nil
}

// overSocket distinguishes requests that net/http serves from requests in process.
func (r *Request) overSocket() bool { return r.Context().Value(http.ServerContextKey) != nil }

// Secure reports whether a request came over TLS or, in process, would have.
func (r *Request) Secure() bool {
	return r.TLS != nil || (!r.overSocket() && r.URL.Scheme == "https")
}

// Number returns an integer query parameter within [least, most], or returns
// fallback where the request has none.
func (r *Request) Number(name string, fallback, least, most int64) (int64, error) {
	if !r.Query.Has(name) {
		return fallback, nil
	}
	n, err := strconv.ParseInt(r.Query.Get(name), 10, 64)
	if err != nil {
		return 0, ErrInvalidQuery.Because("%s is not a number", name)
	}
	if n < least || n > most {
		return 0, errQueryRange.Because("%s is %d, must be within %d and %d", name, n, least, most)
	}
	return n, nil
}

// Seconds is number for a parameter in seconds.
func (r *Request) Seconds(name string, fallback, least, most time.Duration) (time.Duration, error) {
	n, err := r.Number(name, int64(fallback/time.Second), int64(least/time.Second), int64(most/time.Second))
	return time.Duration(n) * time.Second, err
}

// Endpoint is the address of the service as the client wrote it, for listings.
func (r *Request) Endpoint() string {
	scheme := "http"
	if r.Secure() {
		scheme = "https"
	}
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	return fmt.Sprintf("%s://%s/%s/", scheme, host, r.Account)
}

// RequestedRange reads the range headers, x-ms-range before Range. A range
// that is malformed, or not of the forms "bytes=a-b" and "bytes=a-", is
// ignored, as the service does.
func RequestedRange(r *Request) *Range {
	value := r.Header.Get("x-ms-range")
	if value == "" {
		value = r.Header.Get("Range")
	}
	spec, found := strings.CutPrefix(value, "bytes=")
	from, to, dash := strings.Cut(spec, "-")
	first, err := strconv.ParseUint(from, 10, 62)
	if !found || !dash || err != nil {
		return nil
	}
	if to == "" {
		return &Range{Offset: int64(first), Count: -1}
	}
	last, err := strconv.ParseUint(to, 10, 62)
	if err != nil || last < first {
		return nil
	}
	return &Range{Offset: int64(first), Count: int64(last-first) + 1}
}

// Service names one of the account's two services.
type Service string

// The services of an account.
const (
	BlobService  Service = "blob"
	QueueService Service = "queue"
)

// Operation is a routed request, ready to run.
type Operation struct {
	Name    string
	MaxBody int64 // bytes; 0 where the service reads no body
	Run     func(r *Request) (*Reply, error)
}

// OpUnknown names the operation of a request that asks for none there is.
const OpUnknown = "Unknown"

// UnknownOperation refuses an operation that the emulator lacks, and names it.
func UnknownOperation(r *Request) error {
	return ErrNotImplemented.Because("%s %s?%s on the %s service", r.Method, r.URL.Path, r.URL.RawQuery, r.Service)
}
