package azure

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
)

// countedConn counts the writes to a connection.
type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestOneWrite: a call with a small body takes one write, also when it is repeated, and
// the whole body arrives each time.
func TestOneWrite(t *testing.T) {
	var writes, asked atomic.Int64
	bodies := make(chan string, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway) // after which, unlike 500, the SDK does not ask whether to send the body
			return
		}
		asStorage(w.Header())
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	transport := newTransport(1, false)
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return countedConn{conn, &writes}, err
	}
	defer transport.CloseIdleConnections()
	at := server.URL + "/acct"
	account, err := Connect(AccountConfig{
		ConnectionString: "BlobEndpoint=" + at + ";QueueEndpoint=" + at + ";AccountName=acct;AccountKey=" + secret,
		Transport:        oneWrite{&http.Client{Transport: transport}},
		Retry:            &policy.RetryOptions{RetryDelay: time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	upload := func(body string) {
		t.Helper()
		writes.Store(0)
		blob := account.Container("records").NewBlockBlobClient("a")
		if _, err := blob.Upload(t.Context(), streaming.NopCloser(bytes.NewReader([]byte(body))), nil); err != nil {
			t.Fatal(err)
		}
	}
	small := strings.Repeat("s", 2000)
	upload(small)
	if got := writes.Load(); got != 2 {
		t.Errorf("writes of a call and its retry = %d, want 2", got)
	}
	for range 2 {
		if got := <-bodies; got != small {
			t.Errorf("body has %d bytes, want %d", len(got), len(small))
		}
	}
	large := strings.Repeat("l", smallBody+1)
	upload(large)
	if got := <-bodies; got != large {
		t.Errorf("body has %d bytes, want %d", len(got), len(large))
	}
	if got := writes.Load(); got < 2 {
		t.Errorf("writes of a call with a large body = %d, want several: the test counts too few", got)
	}
}

// TestCompressedBlob: a blob that was stored compressed arrives as it was stored.
func TestCompressedBlob(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked := r.Header.Get("Accept-Encoding"); asked != "" {
			t.Errorf("Accept-Encoding = %q, want none", asked)
		}
		w.Header().Set("Content-Encoding", "gzip")
		asStorage(w.Header())
		_, _ = io.WriteString(w, "compressed")
	}))
	defer server.Close()
	at := server.URL + "/acct"
	account, err := Connect(AccountConfig{
		ConnectionString: "BlobEndpoint=" + at + ";QueueEndpoint=" + at + ";AccountName=acct;AccountKey=" + secret,
	})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := account.Container("data").NewBlobClient("a.gz").DownloadStream(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if got, err := io.ReadAll(reply.Body); string(got) != "compressed" || err != nil {
		t.Errorf("body = %q, %v, want it as it was stored", got, err)
	}
}
