package azure

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/spotworker/spotworker/internal/storage/hedge"
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
	account, err := Connect(AccountConfig{
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
	credential, err := AccountConfig{ClientID: "00000000-0000-0000-0000-0000000000aa"}.credential()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := credential.GetToken(t.Context(),
		policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}}); err == nil {
		t.Error("a sign-in that was redirected = nil, want an error")
	}
	if asked.Load() < 3 || led.Load() > 0 {
		t.Errorf("%d requests, of which %d were led elsewhere, want at least 3 and 0", asked.Load(), led.Load())
	}
}

// deadly is a server whose connections can die: a request on one of them is
// never answered, and the connection stays open.
type deadly struct {
	*httptest.Server
	first sync.WaitGroup // of requests: they are answered together, so that each needs a connection

	mu        sync.Mutex
	alive     map[net.Conn]bool
	swallowed int
	end       chan struct{}
}

type connKey struct{}

func newDeadly(t *testing.T, connections int) *deadly {
	s := &deadly{alive: map[net.Conn]bool{}, end: make(chan struct{})}
	s.first.Add(connections)
	var requests atomic.Int64
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asStorage(w.Header())
		if requests.Add(1) <= int64(connections) {
			s.first.Done()
			s.first.Wait()
		}
		if !s.isAlive(r.Context().Value(connKey{}).(net.Conn)) {
			<-s.end
		}
	}))
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.alive[c] = true
		return context.WithValue(ctx, connKey{}, c)
	}
	s.Start()
	t.Cleanup(func() { close(s.end); s.Close() })
	return s
}

func (s *deadly) isAlive(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.alive[c] {
		s.swallowed++
	}
	return s.alive[c]
}

// kill lets all connections die that there are.
func (s *deadly) kill() (died int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.alive {
		s.alive[c] = false
	}
	return len(s.alive)
}

// TestRetryLeavesDeadConnections: all pooled connections have died without a sign.
// One try is lost on one of them, and its retry goes out on a fresh one.
func TestRetryLeavesDeadConnections(t *testing.T) {
	const pooled = 4
	s := newDeadly(t, pooled)
	at := s.URL + "/acct"
	account, err := Connect(AccountConfig{
		ConnectionString: "BlobEndpoint=" + at + ";QueueEndpoint=" + at + ";AccountName=acct;AccountKey=" + secret,
	})
	if err != nil {
		t.Fatal(err)
	}
	call := func(ctx context.Context) error {
		_, err := account.Container("records").GetProperties(ctx, nil)
		return err
	}
	var opening sync.WaitGroup
	for range pooled {
		opening.Go(func() {
			if err := call(t.Context()); err != nil {
				t.Errorf("call = %v, want no error", err)
			}
		})
	}
	opening.Wait()
	if n := s.kill(); n != pooled {
		t.Fatalf("connections = %d, want %d", n, pooled)
	}

	short, begin := context.WithCancel(t.Context())
	tries := hedge.NewTries(short)
	begin()
	asked := time.Now()
	if err := call(tries.In(t.Context())); err != nil {
		t.Fatalf("call over dead connections = %v, want no error", err)
	}
	t.Logf("one call, %d dead connections in the pool: %s", pooled, time.Since(asked))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.swallowed != 1 {
		t.Errorf("tries on dead connections = %d, want 1", s.swallowed)
	}
}

// TestForeignAnswers: a success that the storage service did not send is an error, and not
// an empty list or a write that took effect.
func TestForeignAnswers(t *testing.T) {
	for name, row := range map[string]struct {
		status int
		header string
		says   string // empty for an answer that is taken
	}{
		"a sign-in page":           {http.StatusOK, "", "answered 200, but not by the storage service"},
		"a page for a write":       {http.StatusCreated, "", "answered 201, but not by the storage service"},
		"the service's id":         {http.StatusCreated, "x-ms-request-id", ""},
		"a refusal of a gateway":   {http.StatusBadRequest, "", "400"},
		"an answer without a body": {http.StatusNoContent, "", "answered 204, but not by the storage service"},
	} {
		account, err := Connect(AccountConfig{
			ConnectionString: "BlobEndpoint=http://127.0.0.1:1/acct;QueueEndpoint=http://127.0.0.1:1/acct;SharedAccessSignature=sv=2026&sig=" +
				secret,
			Retry: &policy.RetryOptions{MaxRetries: -1},
			Transport: answer(func(r *http.Request) (*http.Response, error) {
				header := http.Header{}
				if row.header != "" {
					asStorage(header)
					header.Del("x-ms-request-id")
					header.Set(row.header, "1")
				}
				return &http.Response{StatusCode: row.status, Request: r, Header: header,
					Body: io.NopCloser(strings.NewReader("<html>sign in</html>"))}, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = account.Container("data").NewBlockBlobClient("a").Upload(t.Context(), streaming.NopCloser(strings.NewReader("x")), nil)
		switch {
		case row.says == "" && err != nil:
			t.Errorf("%s: Upload = %v, want no error", name, err)
		case row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), secret)):
			t.Errorf("%s: Upload = %v, want an error with %q and without the signature", name, err, row.says)
		}
	}
}
