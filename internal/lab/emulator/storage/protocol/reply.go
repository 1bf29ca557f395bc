package protocol

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/link"
)

// LatestVersion is the protocol version in replies to requests that name none.
const LatestVersion = "2025-01-05"

// Reply is the service's reply.
type Reply struct {
	Status int
	Header http.Header
	Body   *Reader    // nil: none
	Flow   *link.Flow // the body's pace
	Cut    bool       // the connection ends before the first byte of the body

	Served     Range    // for Result
	MessageIDs []string // for Result
}

// NewReply returns a reply without a body.
func NewReply(status int) *Reply {
	return &Reply{Status: status, Header: make(http.Header)}
}

// Set adds a header unless its value is empty.
func (p *Reply) Set(key, value string) {
	if value != "" {
		p.Header.Set(key, value)
	}
}

// SetTime adds a header with a time.
func (p *Reply) SetTime(key string, t time.Time) {
	p.Header.Set(key, t.UTC().Format(TimeFormat))
}

// SetMetadata adds the metadata headers under their lower-case names, which
// Header.Set would change.
func (p *Reply) SetMetadata(m map[string]string) {
	for name, value := range m {
		p.Header[metadataPrefix+name] = []string{value}
	}
}

// NewXMLReply is a reply with an XML body.
func NewXMLReply(doc *XML) *Reply {
	p := NewReply(http.StatusOK)
	p.setXML(doc)
	return p
}

// setXML makes a document the body.
func (p *Reply) setXML(doc *XML) {
	data := doc.bytes()
	p.Body = NewContent(data).Read(Range{Count: int64(len(data))})
	p.Header.Set("Content-Type", "application/xml")
}

// Spoil cuts the body off in its middle, and states the length that is left.
func (p *Reply) Spoil() {
	if p.Body != nil {
		p.Body.left /= 2
		p.Header.Set("Content-Length", strconv.FormatInt(p.length(), 10))
	}
}

// ErrorReply is the reply to a refused request.
func ErrorReply(e *Error, requestID string, now time.Time) *Reply {
	p := NewReply(e.Status)
	for key := range e.header {
		p.Set(key, e.header.Get(key))
	}
	p.Header.Set(HeaderErrorCode, e.Code)
	if e.RetryAfter > 0 {
		p.Header.Set("Retry-After", e.retryAfterSeconds())
	}
	if e.Status == http.StatusNotModified {
		return p
	}
	doc := NewXML("Error")
	doc.Text("Code", e.Code)
	doc.Text("Message", e.Message+"\nRequestId:"+requestID+"\nTime:"+now.UTC().Format("2006-01-02T15:04:05.0000000Z"))
	doc.Close("Error")
	p.setXML(doc)
	return p
}

// Stamp adds the headers that every reply carries.
func (p *Reply) Stamp(r *Request, requestID string) {
	p.Header.Set("Server", "spotworker-storage-emulator")
	p.SetTime("Date", r.Now)
	p.Header.Set(HeaderRequestID, requestID)
	p.Set(HeaderClientRequestID, r.Header.Get(HeaderClientRequestID))
	version := r.Header.Get(HeaderVersion)
	if version == "" {
		version = LatestVersion
	}
	p.Header.Set(HeaderVersion, version)
	bodiless := p.Status == http.StatusNoContent || p.Status == http.StatusNotModified
	if p.Header.Get("Content-Length") == "" && !bodiless {
		p.Header.Set("Content-Length", strconv.FormatInt(p.length(), 10))
	}
}

// length is the size of the body. A reply to HEAD may state another one.
func (p *Reply) length() int64 {
	if p.Body == nil {
		return 0
	}
	return p.Body.left
}

// NewRequestID returns an id for the x-ms-request-id header.
func NewRequestID() string { return uuid.NewString() }

// Send writes the reply to an HTTP connection at the pace of its flow. The body
// is left out of the answer to a HEAD request, its length is not. An error means
// that the client has gone, or that the connection has to be cut.
func (p *Reply) Send(w http.ResponseWriter, raw *http.Request) error {
	maps.Copy(w.Header(), p.Header)
	w.WriteHeader(p.Status)
	if raw.Method == http.MethodHead || p.Body == nil {
		return nil
	}
	if p.Cut {
		return errors.Join(io.ErrUnexpectedEOF, http.NewResponseController(w).Flush())
	}
	for data := p.Body.next(); data != nil; data = p.Body.next() {
		if p.Flow.Limited() { // the bytes written so far must arrive
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
		}
		n, ok := p.Flow.Pass(raw.Context(), len(data))
		if !ok {
			return context.Cause(raw.Context())
		}
		if _, err := w.Write(data[:n]); err != nil {
			return err
		}
		p.Body.advance(n)
	}
	return nil
}

// Response is the reply as http.Client returns it.
func (p *Reply) Response(req *http.Request) *http.Response {
	res := &http.Response{
		Status:     fmt.Sprintf("%d %s", p.Status, http.StatusText(p.Status)),
		StatusCode: p.Status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        make(http.Header, len(p.Header)),
		ContentLength: p.statedLength(),
		Request:       req,
		Body:          http.NoBody,
	}
	for key, values := range p.Header {
		res.Header[textproto.CanonicalMIMEHeaderKey(key)] = values
	}
	if req.Method != http.MethodHead && p.Body != nil {
		res.Body = &liveBody{ctx: req.Context(), reply: p}
	}
	return res
}

// liveBody is a reply's body as it comes from a socket: at the pace of its
// flow, and no more of it once the request's context has ended.
type liveBody struct {
	ctx   context.Context //nolint:containedctx // lives as long as the request
	reply *Reply
}

func (b *liveBody) Read(p []byte) (int, error) {
	if b.reply.Cut {
		return 0, io.ErrUnexpectedEOF
	}
	data := b.reply.Body.next()
	n, ok := b.reply.Flow.Pass(b.ctx, min(len(p), len(data)))
	switch {
	case !ok:
		return 0, context.Cause(b.ctx)
	case data == nil:
		return 0, io.EOF
	}
	copy(p, data[:n])
	b.reply.Body.advance(n)
	return n, nil
}

func (b *liveBody) Close() error { return nil }

// statedLength is the Content-Length, as net/http's client hands it on.
func (p *Reply) statedLength() int64 {
	n, err := strconv.ParseInt(p.Header.Get("Content-Length"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
