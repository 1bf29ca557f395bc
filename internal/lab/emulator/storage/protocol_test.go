package storage

import (
	"net/http"
	"strings"
	"testing"
)

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
