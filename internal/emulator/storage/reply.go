package storage

import (
	"bytes"
	"context"
	"encoding/xml"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// timeFormat is RFC 1123 in GMT with whole seconds, the only precision that
// the service shows.
const timeFormat = http.TimeFormat

// latestVersion is the protocol version in replies to requests that name none.
const latestVersion = "2025-01-05"

// reply is what the service sends back.
type reply struct {
	status int
	header http.Header
	body   *blobReader // nil: none
	flow   *flow       // the body's pace

	served     Range    // for Result
	messageIDs []string // for Result
}

func newReply(status int) *reply {
	return &reply{status: status, header: make(http.Header)}
}

// set adds a header unless its value is empty.
func (p *reply) set(key, value string) {
	if value != "" {
		p.header.Set(key, value)
	}
}

// setTime adds a header with a time.
func (p *reply) setTime(key string, t time.Time) {
	p.header.Set(key, t.UTC().Format(timeFormat))
}

// setMetadata adds the metadata headers under their lower-case names, which
// Header.Set would change.
func (p *reply) setMetadata(m map[string]string) {
	for name, value := range m {
		p.header[metadataPrefix+name] = []string{value}
	}
}

// xmlReply is a reply with an XML body.
func xmlReply(doc *xmlDoc) *reply {
	p := newReply(http.StatusOK)
	p.setXML(doc)
	return p
}

// setXML makes a document the body.
func (p *reply) setXML(doc *xmlDoc) {
	data := doc.bytes()
	p.body = newContent([]block{{data: data}}).read(Range{Count: int64(len(data))})
	p.header.Set("Content-Type", "application/xml")
}

// spoil cuts the body off in its middle, and states the length that is left.
func (p *reply) spoil() {
	if p.body != nil {
		p.body.left /= 2
		p.header.Set("Content-Length", strconv.FormatInt(p.length(), 10))
	}
}

// errorReply is the reply to a refused request.
func errorReply(e *Error, requestID string, now time.Time) *reply {
	p := newReply(e.Status)
	for key := range e.header {
		p.set(key, e.header.Get(key))
	}
	p.header.Set(headerErrorCode, e.Code)
	if e.RetryAfter > 0 {
		p.header.Set("Retry-After", e.retryAfterSeconds())
	}
	if e.Status == http.StatusNotModified {
		return p
	}
	doc := newXML("Error")
	doc.text("Code", e.Code)
	doc.text("Message", e.Message+"\nRequestId:"+requestID+"\nTime:"+now.UTC().Format("2006-01-02T15:04:05.0000000Z"))
	doc.close("Error")
	p.setXML(doc)
	return p
}

// stamp adds the headers that every reply carries.
func (p *reply) stamp(r *request, requestID string) {
	p.header.Set("Server", "spotworker-storage-emulator")
	p.setTime("Date", r.now)
	p.header.Set(headerRequestID, requestID)
	p.set(headerClientRequestID, r.Header.Get(headerClientRequestID))
	version := r.Header.Get(headerVersion)
	if version == "" {
		version = latestVersion
	}
	p.header.Set(headerVersion, version)
	bodiless := p.status == http.StatusNoContent || p.status == http.StatusNotModified
	if p.header.Get("Content-Length") == "" && !bodiless {
		p.header.Set("Content-Length", strconv.FormatInt(p.length(), 10))
	}
}

// length is the size of the body. A reply to HEAD may state another one.
func (p *reply) length() int64 {
	if p.body == nil {
		return 0
	}
	return p.body.left
}

// statedLength is the Content-Length, as net/http's client hands it on.
func (p *reply) statedLength() int64 {
	n, err := strconv.ParseInt(p.header.Get("Content-Length"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// send writes the reply to an HTTP connection at the pace of its flow. The body
// is left out of the answer to a HEAD request, its length is not. An error means
// that the client has gone.
func (p *reply) send(w http.ResponseWriter, raw *http.Request) error {
	maps.Copy(w.Header(), p.header)
	w.WriteHeader(p.status)
	if raw.Method == http.MethodHead || p.body == nil {
		return nil
	}
	for data := p.body.next(); data != nil; data = p.body.next() {
		if p.flow.limited() { // what was written so far is to arrive
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
		}
		n, ok := p.flow.pass(raw.Context(), len(data))
		if !ok {
			return context.Cause(raw.Context())
		}
		if _, err := w.Write(data[:n]); err != nil { //nolint:gosec // a blob, or XML escaped by xmlDoc
			return err
		}
		p.body.advance(n)
	}
	return nil
}

func newRequestID() string { return uuid.NewString() }

// xmlDoc writes an XML document an element at a time. Element names are this
// package's own and go in unescaped; text and attributes are escaped.
// encoding/xml would do the same from structs at many times the cost.
type xmlDoc struct {
	buf bytes.Buffer
}

// newXML begins a document and opens its root element. Attributes are pairs of
// name and value.
func newXML(root string, attributes ...string) *xmlDoc {
	d := &xmlDoc{}
	d.buf.WriteString(`<?xml version="1.0" encoding="utf-8"?>`)
	d.buf.WriteString("<" + root)
	for i := 0; i+1 < len(attributes); i += 2 {
		d.buf.WriteString(" " + attributes[i] + `="`)
		d.escape(attributes[i+1])
		d.buf.WriteByte('"')
	}
	d.buf.WriteByte('>')
	return d
}

func (d *xmlDoc) open(name string) {
	d.buf.WriteByte('<')
	d.buf.WriteString(name)
	d.buf.WriteByte('>')
}

func (d *xmlDoc) close(name string) {
	d.buf.WriteString("</")
	d.buf.WriteString(name)
	d.buf.WriteByte('>')
}

func (d *xmlDoc) text(name, value string) {
	d.open(name)
	d.escape(value)
	d.close(name)
}

// optional is text, left out where the value is empty.
func (d *xmlDoc) optional(name, value string) {
	if value != "" {
		d.text(name, value)
	}
}

func (d *xmlDoc) number(name string, n int64) {
	d.text(name, strconv.FormatInt(n, 10))
}

func (d *xmlDoc) time(name string, t time.Time) {
	d.text(name, t.UTC().Format(timeFormat))
}

func (d *xmlDoc) bytes() []byte { return d.buf.Bytes() }

// escape writes text. Most of it, base64 above all, needs no escaping and is
// copied whole.
func (d *xmlDoc) escape(text string) {
	if plainXML(text) {
		d.buf.WriteString(text)
		return
	}
	_ = xml.EscapeText(&d.buf, []byte(text)) // a bytes.Buffer does not fail
}

// plainXML reports whether text is printable ASCII with nothing that XML
// escapes.
func plainXML(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c > '~', c == '<', c == '>', c == '&', c == '"', c == '\'':
			return false
		}
	}
	return true
}
