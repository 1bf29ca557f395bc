package storage

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	headerErrorCode       = "x-ms-error-code"
	headerRequestID       = "x-ms-request-id"
	headerClientRequestID = "x-ms-client-request-id"
	headerVersion         = "x-ms-version"
	headerDate            = "x-ms-date"
)

// request is an HTTP request with its path parsed:
// /<account>/<resource>/<rest>. Header keys are in canonical form.
type request struct {
	*http.Request
	service  Service
	account  string
	resource string // queue or container, empty at account level
	rest     string // blob name, or "messages[/<id>]"
	query    url.Values
	body     []byte
	// principal is the object id of the identity whose token the request has.
	principal string
	// now is the instant of the effect: reply's Date, Last-Modified, and the
	// start of every timeout.
	now time.Time
}

// newRequest parses raw. With an error the request can still be replied to and
// counted.
func newRequest(service Service, raw *http.Request) (*request, error) {
	r := &request{Request: raw, service: service, query: url.Values{}}
	query, err := url.ParseQuery(raw.URL.RawQuery)
	if err != nil {
		return r, errInvalidURI.because("query: %v", err)
	}
	r.query = query
	parts := strings.SplitN(strings.TrimPrefix(raw.URL.EscapedPath(), "/"), "/", 3)
	for i, to := range []*string{&r.account, &r.resource, &r.rest} {
		if i >= len(parts) {
			break
		}
		if *to, err = url.PathUnescape(parts[i]); err != nil {
			return r, errInvalidURI.because("path: %v", err)
		}
	}
	return r, nil
}

// messageID is the id in .../messages/<id>, or empty.
func (r *request) messageID() string {
	id, _ := strings.CutPrefix(r.rest, "messages/")
	if id == r.rest {
		return ""
	}
	return id
}

// readBody reads the whole body, at most limit bytes, at the pace of its flow.
// It fails as soon as the request's context ends.
//
// A body from a socket is read at once, and its arrival is paced after that: the
// bytes would be in the buffers of both kernels anyway, and net/http notices a
// client that has gone only once it has read the body.
func (r *request) readBody(limit int64, f *flow) error {
	switch {
	case r.ContentLength > limit:
		return errBodyTooLarge.because("%d bytes, at most %d", r.ContentLength, limit)
	case r.ContentLength < 0:
		return errNoContentLength
	case r.ContentLength == 0 || r.Body == nil:
		return nil
	}
	r.body = make([]byte, r.ContentLength)
	have := 0
	if r.overSocket() {
		have = len(r.body)
		if _, err := io.ReadFull(r.Body, r.body); err != nil {
			return fmt.Errorf("read request body: %w", err)
		}
	}
	for passed := 0; passed < len(r.body); {
		n, ok := f.pass(r.Context(), len(r.body)-passed)
		if !ok {
			return context.Cause(r.Context())
		}
		passed += n
		if passed <= have {
			continue
		}
		if _, err := io.ReadFull(r.Body, r.body[passed-n:passed]); err != nil {
			return fmt.Errorf("read request body: %w", err)
		}
	}
	return nil
}

// overSocket tells requests that net/http serves from those in process.
func (r *request) overSocket() bool { return r.Context().Value(http.ServerContextKey) != nil }

// secure reports whether a request came over TLS or, in process, would have.
func (r *request) secure() bool {
	return r.TLS != nil || (!r.overSocket() && r.URL.Scheme == "https")
}

// number returns an integer query parameter within [least, most], or returns
// fallback where the request has none.
func (r *request) number(name string, fallback, least, most int64) (int64, error) {
	if !r.query.Has(name) {
		return fallback, nil
	}
	n, err := strconv.ParseInt(r.query.Get(name), 10, 64)
	if err != nil {
		return 0, errInvalidQuery.because("%s is not a number", name)
	}
	if n < least || n > most {
		return 0, errQueryRange.because("%s is %d, must be within %d and %d", name, n, least, most)
	}
	return n, nil
}

// seconds is number for a parameter in seconds.
func (r *request) seconds(name string, fallback, least, most time.Duration) (time.Duration, error) {
	n, err := r.number(name, int64(fallback/time.Second), int64(least/time.Second), int64(most/time.Second))
	return time.Duration(n) * time.Second, err
}

// pageSize reads maxresults: at least 1, and no more than most are given
// however many are asked for.
func (r *request) pageSize(most int) (int, error) {
	n, err := r.number("maxresults", int64(most), 1, math.MaxInt32)
	return min(int(n), most), err
}

// includes reports whether the comma-separated include parameter has a value.
func (r *request) includes(value string) bool {
	for v := range strings.SplitSeq(r.query.Get("include"), ",") {
		if strings.EqualFold(v, value) {
			return true
		}
	}
	return false
}

// endpoint is the address of the service as the client wrote it, for listings.
func (r *request) endpoint() string {
	scheme := "http"
	if r.secure() {
		scheme = "https"
	}
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	return fmt.Sprintf("%s://%s/%s/", scheme, host, r.account)
}

const (
	metadataPrefix   = "x-ms-meta-"
	maxMetadataBytes = 8 << 10 // names and values together
)

// parseMetadata reads the metadata headers of a request, with names in lower
// case. It refuses what Azure refuses: names that are no C# identifiers,
// values that are empty or hold anything but printable ASCII, and more than
// 8 KiB. It returns nil when there are none.
func parseMetadata(h http.Header) (map[string]string, error) {
	var m map[string]string
	size := 0
	for key, values := range h {
		name, found := strings.CutPrefix(strings.ToLower(key), metadataPrefix)
		if !found {
			continue
		}
		value := strings.Join(values, ",")
		if err := checkMetadata(name, value); err != nil {
			return nil, err
		}
		if m == nil {
			m = make(map[string]string)
		}
		m[name] = value
		size += len(name) + len(value)
	}
	if size > maxMetadataBytes {
		return nil, errMetadataTooLarge.because("%d bytes", size)
	}
	return m, nil
}

func checkMetadata(name, value string) error {
	if name == "" {
		return errEmptyMetadataKey
	}
	if !isIdentifier(name) {
		return errInvalidMetadata.because("name %q is not a C# identifier", name)
	}
	if value == "" {
		return errInvalidMetadata.because("the value of %q is empty", name)
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' {
			return errInvalidMetadata.because("the value of %q has the byte %#02x, which is not printable ASCII", name, c)
		}
	}
	return nil
}

// isIdentifier reports whether name is a C# identifier, as far as a header's
// name can be one.
func isIdentifier(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
		digit := c >= '0' && c <= '9'
		if !letter && (!digit || i == 0) {
			return false
		}
	}
	return name != ""
}

// writeMetadata writes metadata into a listing, in the order of names.
func writeMetadata(doc *xmlDoc, m map[string]string) {
	doc.open("Metadata")
	for _, name := range slices.Sorted(maps.Keys(m)) {
		doc.text(name, m[name])
	}
	doc.close("Metadata")
}
