package azure

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// TestRedirectsAreNotFollowed: neither storage nor the token endpoint can send a
// caller, with its token or its secret header, to another host.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var asked, led atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { led.Add(1) }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer server.Close()

	at := server.URL + "/acct"
	account, err := Connect(Config{
		ConnectionString: "BlobEndpoint=" + at + ";QueueEndpoint=" + at + ";AccountName=acct;AccountKey=" + secret,
		Retry:            &policy.RetryOptions{MaxRetries: -1},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := account.Container("records").GetProperties(t.Context(), nil); err == nil {
		t.Error("a call that was redirected = nil, want an error")
	}
	if _, err := account.Queue("jobs").GetProperties(t.Context(), nil); err == nil {
		t.Error("a call that was redirected = nil, want an error")
	}

	t.Setenv("IDENTITY_ENDPOINT", server.URL) // the flow in which the secret is a header
	t.Setenv("IDENTITY_HEADER", secret)
	credential, err := Config{ClientID: "00000000-0000-0000-0000-0000000000aa"}.credential()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := credential.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}}); err == nil {
		t.Error("a sign-in that was redirected = nil, want an error")
	}
	if asked.Load() < 3 || led.Load() > 0 {
		t.Errorf("%d requests, of which %d were led elsewhere, want at least 3 and 0", asked.Load(), led.Load())
	}
}
