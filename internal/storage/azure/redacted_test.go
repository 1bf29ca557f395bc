package azure

import (
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// TestErrorsHaveNoQuery: not even the error as it stands, which a handler may put
// into its job's record, repeats the signature that calls are made with.
func TestErrorsHaveNoQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const at = "http://127.0.0.1:1/acct"
		account, err := Connect(AccountConfig{
			ConnectionString: "BlobEndpoint=" + at + ";QueueEndpoint=" + at + ";SharedAccessSignature=sv=2026&sig=" + secret,
			Transport: answer(func(r *http.Request) (*http.Response, error) {
				if !strings.Contains(r.URL.RawQuery, secret) {
					t.Errorf("call without a signature: %s", r.URL)
				}
				return nil, &url.Error{Op: "Get", URL: r.URL.String(), Err: syscall.ECONNREFUSED} // as package net/http says it
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, blobErr := account.Container("data").NewBlobClient("a").GetProperties(t.Context(), nil)
		_, queueErr := account.Queue("jobs").GetProperties(t.Context(), nil)
		for service, err := range map[string]error{"blob": blobErr, "queue": queueErr} {
			if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), at) {
				t.Errorf("%s: error %v, want one with the address and without its query", service, err)
			}
		}
	})
}
