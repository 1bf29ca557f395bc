package storage

import (
	"encoding/xml"
	"net/http"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

const messagesPath = "/devstoreaccount1/jobs/messages"

// messageBody is the body of Put Message and Update Message.
func messageBody(inner string) string {
	return "<QueueMessage><MessageText>" + inner + "</MessageText></QueueMessage>"
}

func TestMessageBodies(t *testing.T) {
	tests := []struct {
		name, body string
		status     int
		code       string
		text       string
	}{
		{name: "plain", body: messageBody("aGVsbG8="), status: 201, text: "aGVsbG8="},
		{name: "with a declaration", body: xml.Header + messageBody("text"), status: 201, text: "text"},
		{name: "entities", body: messageBody("a &amp; &lt;b&gt; &#x9;"), status: 201, text: "a & <b> \t"},
		{name: "empty", body: messageBody(""), status: 201},
		{name: "CDATA", body: messageBody("<![CDATA[<a>]]>"), status: 201, text: "<a>"},
		{name: "other white space", body: "<QueueMessage>\n <MessageText>x</MessageText>\n</QueueMessage>", status: 201, text: "x"},
		{name: "a control character", body: messageBody("a\x01b"), status: 400, code: "InvalidXmlDocument"},
		{name: "a reference to one", body: messageBody("a&#1;b"), status: 400, code: "InvalidXmlDocument"},
		{name: "invalid UTF-8", body: messageBody("a\xffb"), status: 400, code: "InvalidXmlDocument"},
		{name: "U+FFFE", body: messageBody("a\uFFFEb"), status: 400, code: "InvalidXmlDocument"},
		{name: "not closed", body: "<QueueMessage><MessageText>x", status: 400, code: "InvalidXmlDocument"},
		{name: "no text", body: "<QueueMessage></QueueMessage>", status: 400, code: "InvalidXmlDocument"},
		{name: "another element", body: "<Other><MessageText>x</MessageText></Other>", status: 400, code: "InvalidXmlDocument"},
		{name: "no XML", body: "x", status: 400, code: "InvalidXmlDocument"},
		{name: "no body", body: "", status: 400, code: "InvalidXmlDocument"},
		{name: "64 KiB, all of it escaped", body: messageBody(strings.Repeat("&#60;", 64<<10)), status: 201, text: strings.Repeat("<", 64<<10)},
		{name: "a byte more than 64 KiB", body: messageBody(strings.Repeat("x", 64<<10+1)), status: 413, code: "RequestBodyTooLarge"},
		{name: "far more", body: messageBody(strings.Repeat("x", 1<<20)), status: 413, code: "RequestBodyTooLarge"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := setup(t, Options{})
			res, _ := send(a.Queue(), a.signed(http.MethodPost, messagesPath, tt.body))
			wantReply(t, "POST", res, tt.status, tt.code)
			messages := a.Messages("jobs")
			if tt.status != 201 {
				if len(messages) != 0 {
					t.Errorf("a refused message was stored")
				}
				return
			}
			if len(messages) != 1 || messages[0].Text != tt.text {
				t.Errorf("stored %d messages, want one with the text %.40q", len(messages), tt.text)
			}
		})
	}
}

func TestUpdateMessageWithoutABodyKeepsTheText(t *testing.T) {
	a := setup(t, Options{})
	if _, err := a.queue.EnqueueMessage(t.Context(), "text", nil); err != nil {
		t.Fatalf("EnqueueMessage: %v", err)
	}
	m := a.Messages("jobs")[0]
	path := messagesPath + "/" + m.ID + "?visibilitytimeout=60&popreceipt=" + strings.NewReplacer("+", "%2B", "/", "%2F", "=",
		"%3D").Replace(m.PopReceipt)
	res, _ := send(a.Queue(), a.signed(http.MethodPut, path, ""))
	wantReply(t, "PUT", res, 204, "")
	if got := a.Messages("jobs")[0]; got.Text != "text" || got.PopReceipt == m.PopReceipt || got.Visible {
		t.Errorf("message = %+v, want its text, another receipt, and no visibility", got)
	}
	res, _ = send(a.Queue(), a.signed(http.MethodPut, messagesPath+"/"+m.ID+"?visibilitytimeout=60", ""))
	wantReply(t, "PUT without a receipt", res, 400, "MissingRequiredQueryParameter")
}

func TestErrorsAreXMLButForHEAD(t *testing.T) {
	a := setup(t, Options{})
	res, body := send(a.Blob(), a.signed(http.MethodGet, blobPath, ""))
	wantReply(t, "GET", res, 404, "BlobNotFound")
	var e struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}
	if err := xml.Unmarshal([]byte(body), &e); err != nil || e.Code != "BlobNotFound" ||
		!strings.Contains(e.Message, res.Header.Get(protocol.HeaderRequestID)) {
		t.Errorf("body = %q (%v), want <Error> with the code and the request's id", body, err)
	}
	res, body = send(a.Blob(), a.signed(http.MethodHead, blobPath, ""))
	wantReply(t, "HEAD", res, 404, "BlobNotFound")
	if body != "" {
		t.Errorf("body of a reply to HEAD = %q, want none", body)
	}
}

func TestEveryReplySaysWhoAndWhen(t *testing.T) {
	a := setup(t, Options{})
	r := a.signed(http.MethodGet, blobPath, "", protocol.HeaderClientRequestID, "mine")
	res, _ := send(a.Blob(), r)
	if got := res.Header.Get(protocol.HeaderClientRequestID); got != "mine" {
		t.Errorf("%s = %q, want the request's", protocol.HeaderClientRequestID, got)
	}
	for _, name := range []string{"Date", protocol.HeaderRequestID, protocol.HeaderVersion} {
		if res.Header.Get(name) == "" {
			t.Errorf("no %s in the reply", name)
		}
	}
}

func TestNotModifiedHasNoBody(t *testing.T) {
	a := setup(t, Options{})
	put, err := a.blob("blob").Upload(t.Context(), text("text"), nil)
	if err != nil {
		t.Fatalf("Upload: %v", err)
	}
	res, body := send(a.Blob(), a.signed(http.MethodGet, blobPath, "", "If-None-Match", string(*put.ETag)))
	wantReply(t, "GET", res, 304, "ConditionNotMet")
	if length := res.Header.Get("Content-Length"); body != "" || length != "" {
		t.Errorf("body = %q with Content-Length %q, want neither", body, length)
	}
}

// Go's client sends none of these, another might.
func TestMetadataIsCheckedOnTheServer(t *testing.T) {
	a := setup(t, Options{})
	tests := []struct {
		name, key, value string
		code             string
	}{
		{"a newline", "x-ms-meta-k", "two\nlines", "InvalidMetadata"},
		{"a tab", "x-ms-meta-k", "a\tb", "InvalidMetadata"},
		{"Latin-1", "x-ms-meta-k", "caf\xe9", "InvalidMetadata"},
		{"an empty name", "x-ms-meta-", "v", "EmptyMetadataKey"},
		{"a hyphen in the name", "x-ms-meta-a-b", "v", "InvalidMetadata"},
		{"a digit first", "x-ms-meta-1a", "v", "InvalidMetadata"},
		{"8 KiB and a byte", "x-ms-meta-k", strings.Repeat("v", 8<<10), "MetadataTooLarge"},
		{"8 KiB", "x-ms-meta-k", strings.Repeat("v", 8<<10-1), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, _ := send(a.Blob(), a.signed(http.MethodPut, blobPath, "text", "x-ms-blob-type", "BlockBlob", tt.key, tt.value))
			status := 400
			if tt.code == "" {
				status = 201
			}
			wantReply(t, "PUT", res, status, tt.code)
		})
	}
}

func TestWhatTheEmulatorLacksIsRefusedByName(t *testing.T) {
	a := setup(t, Options{})
	tests := []struct {
		name    string
		request *http.Request
		status  int
		code    string
		says    string
	}{
		{"a version", a.signed(http.MethodGet, blobPath+"?versionid=1", ""), 400, "UnsupportedQueryParameter", "versions"},
		{"a snapshot", a.signed(http.MethodGet, blobPath+"?snapshot=1", ""), 400, "UnsupportedQueryParameter", "snapshots"},
		{"a change of a lease", a.signed(http.MethodPut, blobPath+"?comp=lease", "", "x-ms-lease-action", "change"), 501, "NotImplemented",
			"change"},
		{"a write under a lease", a.signed(http.MethodPut, blobPath, "x", "x-ms-blob-type", "BlockBlob", "x-ms-lease-id", "1"), 501,
			"NotImplemented", "x-ms-lease-id"},
		{"a copy", a.signed(http.MethodPut, blobPath, "", "x-ms-copy-source", "x"), 501, "NotImplemented", "x-ms-copy-source"},
		{"an append blob", a.signed(http.MethodPut, blobPath, "", "x-ms-blob-type", "AppendBlob"), 501, "NotImplemented", "AppendBlob"},
		{"service properties", a.signed(http.MethodGet, "/devstoreaccount1/?restype=service&comp=properties", ""), 501, "NotImplemented",
			"comp=properties"},
		{"a chunked body", chunked(a), 411, "MissingContentLengthHeader", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, body := send(a.Blob(), tt.request)
			wantReply(t, tt.request.Method, res, tt.status, tt.code)
			if !strings.Contains(body, tt.says) {
				t.Errorf("body = %q, want it to name %q", body, tt.says)
			}
		})
	}
}

// chunked is a Put Blob that does not say how long it is.
func chunked(a *fixture) *http.Request {
	r := a.signed(http.MethodPut, blobPath, "text", "x-ms-blob-type", "BlockBlob")
	r.ContentLength = -1
	a.sign(r)
	return r
}

func TestRangeHeaders(t *testing.T) {
	a := setup(t, Options{})
	if _, err := a.blob("blob").Upload(t.Context(), text("0123456789"), nil); err != nil {
		t.Fatalf("Upload: %v", err)
	}
	tests := []struct {
		name, msRange, httpRange string
		status                   int
		body, contentRange       string
	}{
		{name: "none", status: 200, body: "0123456789"},
		{name: "Range", httpRange: "bytes=2-3", status: 206, body: "23", contentRange: "bytes 2-3/10"},
		{name: "x-ms-range goes first", msRange: "bytes=4-5", httpRange: "bytes=2-3", status: 206, body: "45", contentRange: "bytes 4-5/10"},
		{name: "open", msRange: "bytes=8-", status: 206, body: "89", contentRange: "bytes 8-9/10"},
		{name: "all", msRange: "bytes=0-9", status: 206, body: "0123456789", contentRange: "bytes 0-9/10"},
		{name: "a suffix is ignored", httpRange: "bytes=-3", status: 200, body: "0123456789"},
		{name: "nonsense is ignored", msRange: "bytes=x-y", status: 200, body: "0123456789"},
		{name: "another unit is ignored", httpRange: "lines=1-2", status: 200, body: "0123456789"},
		{name: "backwards is ignored", msRange: "bytes=3-2", status: 200, body: "0123456789"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := a.signed(http.MethodGet, blobPath, "", "x-ms-range", tt.msRange, "Range", tt.httpRange)
			res, body := send(a.Blob(), r)
			wantReply(t, "GET", res, tt.status, "")
			if got := res.Header.Get("Content-Range"); body != tt.body || got != tt.contentRange {
				t.Errorf("body = %q with Content-Range %q, want %q with %q", body, got, tt.body, tt.contentRange)
			}
		})
	}
	res, _ := send(a.Blob(), a.signed(http.MethodGet, blobPath, "", "x-ms-range", "bytes=10-"))
	wantReply(t, "GET past the end", res, 416, "InvalidRange")
	if got := res.Header.Get("Content-Range"); got != "bytes */10" {
		t.Errorf("Content-Range = %q, want the blob's length", got)
	}
}
