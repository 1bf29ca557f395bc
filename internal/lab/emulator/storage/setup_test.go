package storage

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// fixture is a server with a queue "jobs" and a container "records", and the
// SDK's clients of both, which never retry.
type fixture struct {
	*Server
	queue *azqueue.QueueClient
	blobs *azblob.Client
}

func setup(t testing.TB, o Options) *fixture {
	t.Helper()
	s := New(o)
	return connect(t, s, s.ConnectionString(), policy.ClientOptions{
		Transport: s.Transport(), Retry: policy.RetryOptions{MaxRetries: -1},
	})
}

func connect(t testing.TB, s *Server, connectionString string, options policy.ClientOptions) *fixture {
	t.Helper()
	queue, err := azqueue.NewQueueClientFromConnectionString(connectionString, "jobs", &azqueue.ClientOptions{ClientOptions: options})
	if err != nil {
		t.Fatalf("queue client: %v", err)
	}
	blobs, err := azblob.NewClientFromConnectionString(connectionString, &azblob.ClientOptions{ClientOptions: options})
	if err != nil {
		t.Fatalf("blob client: %v", err)
	}
	if _, err := queue.Create(t.Context(), nil); err != nil {
		t.Fatalf("create queue: %v", err)
	}
	if _, err := blobs.CreateContainer(t.Context(), "records", nil); err != nil {
		t.Fatalf("create container: %v", err)
	}
	s.ResetCounts()
	return &fixture{Server: s, queue: queue, blobs: blobs}
}

func (a *fixture) blob(name string) *blockblob.Client {
	return a.blobs.ServiceClient().NewContainerClient("records").NewBlockBlobClient(name)
}

func text(s string) io.ReadSeekCloser { return streaming.NopCloser(strings.NewReader(s)) }

// texts are the texts of the messages in "jobs".
func (a *fixture) texts() []string {
	var out []string
	for _, m := range a.Messages("jobs") {
		out = append(out, m.Text)
	}
	return out
}

// signed makes a request the way no SDK would, with a good signature.
// Parameters after the body are header names and values.
func (a *fixture) signed(method, path, body string, header ...string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set(protocol.HeaderVersion, protocol.LatestVersion)
	r.Header.Set(protocol.HeaderDate, time.Now().UTC().Format(protocol.TimeFormat))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a.sign(r)
	return r
}

func (a *fixture) sign(r *http.Request) {
	secret, _ := base64.StdEncoding.DecodeString(a.key)
	k := sharedKey{account: a.Server.account, secret: secret}
	signature := k.sign(stringToSign(&protocol.Request{Request: r, Query: r.URL.Query()}, k.account, headerOrders[0]))
	r.Header.Set("Authorization", "SharedKey "+k.account+":"+base64.StdEncoding.EncodeToString(signature))
}

// httpRequest is a plain request without a signature.
func httpRequest(t testing.TB, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatalf("new request: %v", err)
	}
	return r
}

// send hands a request to a handler and returns the reply with its body.
func send(h http.Handler, r *http.Request) (*http.Response, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), w.Body.String()
}

// wantReply demands a status and a code of a reply.
func wantReply(t *testing.T, doing string, res *http.Response, status int, code string) {
	t.Helper()
	if got := res.Header.Get(protocol.HeaderErrorCode); res.StatusCode != status || got != code {
		t.Errorf("%s = %d %s, want %d %s", doing, res.StatusCode, got, status, code)
	}
}
