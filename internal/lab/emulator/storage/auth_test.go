package storage

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

const blobPath = "/devstoreaccount1/records/blob"

func TestRequestsThatAreNotAuthentic(t *testing.T) {
	a := setup(t, Options{})
	tests := []struct {
		name    string
		request func() *http.Request
		status  int
		code    string
	}{
		{"no Authorization", func() *http.Request {
			return httptest.NewRequest(http.MethodGet, blobPath, http.NoBody)
		}, 401, "NoAuthenticationInformation"},
		{"another scheme", func() *http.Request {
			r := a.signed(http.MethodGet, blobPath, "")
			r.Header.Set("Authorization", "Bearer token")
			return r
		}, 400, "InvalidAuthenticationInfo"},
		{"no signature", func() *http.Request {
			r := a.signed(http.MethodGet, blobPath, "")
			r.Header.Set("Authorization", "SharedKey devstoreaccount1")
			return r
		}, 400, "InvalidAuthenticationInfo"},
		{"another account", func() *http.Request {
			r := a.signed(http.MethodGet, blobPath, "")
			r.Header.Set("Authorization", "SharedKey other:AAAA")
			return r
		}, 403, "AuthenticationFailed"},
		{"another method than signed", func() *http.Request {
			r := a.signed(http.MethodGet, blobPath, "")
			r.Method = http.MethodDelete
			return r
		}, 403, "AuthenticationFailed"},
		{"another header than signed", func() *http.Request {
			r := a.signed(http.MethodGet, blobPath, "", "If-Match", `"0x1"`)
			r.Header.Set("If-Match", `"0x2"`)
			return r
		}, 403, "AuthenticationFailed"},
		{"an old date", func() *http.Request {
			return a.signed(http.MethodGet, blobPath, "", protocol.HeaderDate, time.Now().Add(-16*time.Minute).UTC().Format(protocol.TimeFormat))
		}, 403, "AuthenticationFailed"},
		{"an authentic request", func() *http.Request {
			return a.signed(http.MethodGet, blobPath, "")
		}, 404, "BlobNotFound"},
		{"an authentic request for another account", func() *http.Request {
			return a.signed(http.MethodGet, "/other/records/blob", "")
		}, 400, "InvalidUri"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, _ := send(a.Blob(), tt.request())
			wantReply(t, "GET", res, tt.status, tt.code)
		})
	}
}

// Both orders of headers that clients use must be good, and they differ only
// where an underscore meets a digit or letter.
func TestBothHeaderOrdersAreGood(t *testing.T) {
	a := setup(t, Options{})
	const first, second = "x-ms-meta-a1", "x-ms-meta-a_b"
	if headerOrders[0](first, second) == headerOrders[1](first, second) {
		t.Fatalf("the orders agree on %s and %s, want names on which they differ", first, second)
	}
	saved := headerOrders
	defer func() { headerOrders = saved }()
	for i, order := range saved {
		r := a.signed(http.MethodPut, blobPath, "text", "x-ms-blob-type", "BlockBlob", first, "1", second, "2")
		headerOrders = []headerOrder{order}
		a.sign(r)
		headerOrders = saved
		res, _ := send(a.Blob(), r)
		wantReply(t, "PUT signed in order "+string(rune('0'+i)), res, 201, "")
	}
}

// The example in "Authorize with Shared Key" names each line; this is the form
// that it describes, written out by hand.
func TestStringToSign(t *testing.T) {
	r := httptest.NewRequest(http.MethodPut, "/acc/box/a%20b?timeout=5&comp=block&blockid=QQ%3D%3D", http.NoBody)
	r.ContentLength = 3
	for key, value := range map[string]string{
		"Content-Type": "text/plain", "Content-MD5": "md5", "Date": "ignored", "x-ms-date": "date",
		"If-Match": "tag", "Range": "bytes=0-1", "x-ms-version": "2025-01-05", "X-Ms-Meta-Kind": "k",
	} {
		r.Header.Set(key, value)
	}
	req, err := protocol.NewRequest(protocol.BlobService, r)
	if err != nil {
		t.Fatalf("newRequest: %v", err)
	}
	want := "PUT\n\n\n3\nmd5\ntext/plain\n\n\ntag\n\n\nbytes=0-1\n" +
		"x-ms-date:date\nx-ms-meta-kind:k\nx-ms-version:2025-01-05\n" +
		"/acc/acc/box/a%20b\nblockid:QQ==\ncomp:block\ntimeout:5"
	if got := stringToSign(req, "acc", headerOrders[0]); got != want {
		t.Errorf("string to sign = %q, want %q", got, want)
	}
}
