package azure

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asStorage sets the headers that each answer of the storage service about a blob has.
func asStorage(h http.Header) {
	h.Set("x-ms-request-id", "1")
	h.Set("ETag", `"0x1"`)
	h.Set("Date", "Mon, 23 Nov 2026 12:00:00 GMT")
	h.Set("Last-Modified", "Mon, 23 Nov 2026 12:00:00 GMT")
}

// answer is a transport that gives every request the same answer.
type answer func(*http.Request) (*http.Response, error)

// Do implements policy.Transporter.
func (a answer) Do(r *http.Request) (*http.Response, error) { return a(r) }
