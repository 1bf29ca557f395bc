package azure

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Limits of bodies, in bytes. A body is never longer than requested; these bound the
// memory that a faulty service or proxy can take.
const (
	// maxListed is for one blob of a list: its name and metadata of 8 KiB, as XML.
	maxListed  = 16 << 10
	listedPage = 5000 // blobs, where the request names no number

	// maxMessage is for one message: a text of 64 KiB in which each character is an entity.
	maxMessage = 400 << 10

	// maxBlockList is for 50,000 committed and 100,000 uncommitted blocks.
	maxBlockList = 32 << 20

	// maxOther is for any other answer, and maxRefusal for a refusal, which is cut off
	// there.
	maxOther   = 1 << 20
	maxRefusal = 256 << 10
)

// errForeign is the error of an answer that something between this machine and the
// storage service has sent.
var errForeign = errors.New("its headers are missing, so a proxy or a gateway may have sent it")

// errTooLong is the error of a body that is longer than any answer to the request.
var errTooLong = errors.New("the answer is longer than what was asked for; a proxy or a gateway may have sent it")

// checked returns an answer with a bounded body. An answer that says that a call succeeded
// and lacks a part that the service always sends is an error of the connection: the SDK
// would take it for an empty result, and callers for a state of the account.
func checked(service string, r *http.Request, resp *http.Response) (*http.Response, error) {
	if resp.StatusCode == http.StatusNotModified && r.Header.Get("If-None-Match") == "" && r.Header.Get("If-Modified-Since") == "" {
		return nil, refused(r, resp, errors.New("nothing was asked under a condition; a proxy may have sent it"))
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		if resp.ContentLength < 0 || resp.ContentLength > maxRefusal {
			resp.Body = &boundedBody{resp.Body, maxRefusal, io.EOF}
		}
		return resp, nil
	}
	err := missingPart(service, r, resp)
	if most := longest(service, r, resp); err == nil && resp.ContentLength > most {
		err = errTooLong
	} else if err == nil && resp.ContentLength < 0 {
		resp.Body = &boundedBody{resp.Body, most, errTooLong}
	}
	if err == nil {
		return resp, nil
	}
	return nil, refused(r, resp, err)
}

// refused closes an answer, and returns the error of a connection in its place.
func refused(r *http.Request, resp *http.Response, why error) error {
	_ = resp.Body.Close()
	return &url.Error{Op: r.Method, URL: r.URL.String(), Err: fmt.Errorf("answered %d, but not by the storage service: %w", resp.StatusCode,
		why)}
}

// missingPart returns an error for a success that lacks a part which callers rely on. It
// allocates nothing for a complete answer.
func missingPart(service string, r *http.Request, resp *http.Response) error {
	h := resp.Header
	if h.Get("X-Ms-Request-Id") == "" && h.Get("X-Ms-Version") == "" {
		return errForeign
	}
	comp := parameter(r.URL.RawQuery, "comp")
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case reads && h.Get("Date") == "":
		return lacks("Date")
	case service == queueService:
		return missingOfQueue(r, h, reads && comp == "metadata")
	case parameter(r.URL.RawQuery, "restype") != "":
	case r.Method == http.MethodPut && comp != "block", reads && comp == "":
		return missingOfBlob(r, resp, reads)
	}
	return nil
}

// missingOfQueue is missingPart for properties of queues, and for updates of messages.
func missingOfQueue(r *http.Request, h http.Header, properties bool) error {
	if properties {
		if n, err := strconv.ParseInt(h.Get("X-Ms-Approximate-Messages-Count"), 10, 32); err != nil || n < 0 {
			return lacks("x-ms-approximate-messages-count")
		}
		return nil
	}
	if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/messages/") && h.Get("X-Ms-Popreceipt") == "" {
		return lacks("x-ms-popreceipt")
	}
	return nil
}

// missingOfBlob is missingPart for reads and writes of whole blobs.
func missingOfBlob(r *http.Request, resp *http.Response, reads bool) error {
	h := resp.Header
	switch {
	case h.Get("Etag") == "":
		return lacks("ETag")
	case h.Get("Last-Modified") == "":
		return lacks("Last-Modified")
	case reads && (resp.ContentLength < 0 || h.Get("Content-Length") == ""):
		return lacks("Content-Length")
	case r.Method != http.MethodGet:
		return nil
	}
	offset, count, ranged := askedRange(r)
	switch {
	case !ranged:
		return nil
	case resp.StatusCode != http.StatusPartialContent,
		!strings.HasPrefix(h.Get("Content-Range"), "bytes "+offset+"-"),
		count >= 0 && resp.ContentLength > count:
		return errors.New("it is not the range that was asked for")
	}
	return nil
}

func lacks(header string) error { return fmt.Errorf("it lacks %s: %w", header, errForeign) }

// askedRange returns the range that a request asks for: its offset, and its number of
// bytes, or -1 for all that follow.
func askedRange(r *http.Request) (offset string, count int64, ok bool) {
	asked := r.Header.Get("Range")
	if given := r.Header["x-ms-range"]; len(given) > 0 { //nolint:staticcheck // the SDK spells it so
		asked = given[0]
	}
	first, last, ok := strings.Cut(strings.TrimPrefix(asked, "bytes="), "-")
	if !ok {
		return "", 0, false
	}
	from, err := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(last, 10, 64)
	if err != nil || err2 != nil {
		return first, -1, true
	}
	return first, to - from + 1, true
}

// longest returns how long the body of a success may be. A blob's body has the length of
// its header, which its reader compares.
func longest(service string, r *http.Request, resp *http.Response) int64 {
	query := r.URL.RawQuery
	switch comp := parameter(query, "comp"); {
	case r.Method == http.MethodHead:
		return resp.ContentLength // without a body
	case r.Method != http.MethodGet:
		return maxOther
	case comp == "list":
		return asked(query, "maxresults", listedPage)*maxListed + maxOther
	case comp == "blocklist":
		return maxBlockList
	case service == queueService && comp == "":
		return asked(query, "numofmessages", 1)*maxMessage + maxOther
	case service == blobService && comp == "" && parameter(query, "restype") == "":
		return resp.ContentLength
	default:
		return maxOther
	}
}

// asked returns how many items a query asks for.
func asked(query, name string, otherwise int64) int64 {
	n, err := strconv.ParseInt(parameter(query, name), 10, 64)
	if err != nil || n < 1 || n > listedPage {
		return otherwise
	}
	return n
}

// boundedBody is a body that ends with an error after that many bytes.
type boundedBody struct {
	io.ReadCloser

	left int64
	end  error
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.end
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
