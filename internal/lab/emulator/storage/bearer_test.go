package storage

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/blobs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/queues"
	"github.com/spotworker/spotworker/internal/lab/emulator/tlsca"
	"github.com/spotworker/spotworker/internal/lab/emulator/token"
)

// credential hands out an issuer's tokens for the resource that is asked for,
// as a managed identity does.
type credential struct {
	issuer *token.Issuer
	life   time.Duration

	mu     sync.Mutex
	scopes []string // of each call
}

func (c *credential) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scopes = append(c.scopes, o.Scopes...)
	now := time.Now()
	return azcore.AccessToken{
		Token: c.issuer.Issue(token.Claims{
			Audience: strings.TrimSuffix(o.Scopes[0], "/.default"), ClientID: "client", ObjectID: "object",
			NotBefore: now, Expires: now.Add(c.life),
		}),
		ExpiresOn: now.Add(c.life),
	}, nil
}

// withTokens connects the SDK's clients to "jobs" and "records" with a
// credential in place of the key. They never retry.
func withTokens(t *testing.T, s *Server, at Endpoints, c azcore.TokenCredential, transport policy.Transporter, audience string) *fixture {
	t.Helper()
	options := policy.ClientOptions{Transport: transport, Retry: policy.RetryOptions{MaxRetries: -1}}
	queues, err := azqueue.NewServiceClient(at.Queue, c, &azqueue.ClientOptions{ClientOptions: options, Audience: audience})
	if err != nil {
		t.Fatalf("queue client: %v", err)
	}
	blobs, err := azblob.NewClient(at.Blob, c, &azblob.ClientOptions{ClientOptions: options, Audience: audience})
	if err != nil {
		t.Fatalf("blob client: %v", err)
	}
	a := &fixture{Server: s, queue: queues.NewQueueClient("jobs"), blobs: blobs}
	if _, err := a.queue.Create(t.Context(), nil); err != nil {
		t.Fatalf("create queue: %v", err)
	}
	if _, err := a.blobs.CreateContainer(t.Context(), "records", nil); err != nil {
		t.Fatalf("create container: %v", err)
	}
	s.ResetCounts()
	return a
}

func TestBearerTokens(t *testing.T) {
	now := time.Now()
	issuer, other := token.NewIssuer(), token.NewIssuer()
	challenge := "Bearer authorization_uri=https://login.microsoftonline.com/" + issuer.Tenant() +
		"/oauth2/authorize resource_id=https://storage.azure.com"
	claims := func(audience string, begins, ends time.Duration) token.Claims {
		return token.Claims{Audience: audience, ClientID: "client", ObjectID: "object", NotBefore: now.Add(begins), Expires: now.Add(ends)}
	}
	valid := func(audience string) string { return "Bearer " + issuer.Issue(claims(audience, 0, time.Hour)) }
	const storageAudience = "https://storage.azure.com/"

	tests := []struct {
		name          string
		authorization string
		base, version string // default: https, latestVersion
		status        int
		code          string
	}{
		{name: "for any account", authorization: valid("https://storage.azure.com"), status: 404, code: "BlobNotFound"},
		{name: "for any account, with a slash", authorization: valid(storageAudience), status: 404, code: "BlobNotFound"},
		{name: "for this account's blobs", authorization: valid("https://devstoreaccount1.blob.core.windows.net/"), status: 404,
			code: "BlobNotFound"},
		{name: "for this account's queues", authorization: valid("https://devstoreaccount1.queue.core.windows.net"), status: 401,
			code: "InvalidAuthenticationInfo"},
		{name: "for another account", authorization: valid("https://other.blob.core.windows.net"), status: 401,
			code: "InvalidAuthenticationInfo"},
		{name: "for another service", authorization: valid("https://management.azure.com/"), status: 401, code: "InvalidAuthenticationInfo"},
		{name: "expired", authorization: "Bearer " + issuer.Issue(claims(storageAudience, -2*time.Hour, -time.Hour)), status: 401,
			code: "InvalidAuthenticationInfo"},
		{name: "not valid yet", authorization: "Bearer " + issuer.Issue(claims(storageAudience, time.Hour, 2*time.Hour)), status: 401,
			code: "InvalidAuthenticationInfo"},
		{name: "of another issuer", authorization: "Bearer " + other.Issue(claims(storageAudience, 0, time.Hour)), status: 401,
			code: "InvalidAuthenticationInfo"},
		{name: "no token at all", authorization: "Bearer token", status: 401, code: "InvalidAuthenticationInfo"},
		{name: "anonymous", status: 401, code: "NoAuthenticationInformation"},
		{name: "over http", authorization: valid(storageAudience), base: "http://", status: 403, code: "AuthenticationFailed"},
		{name: "under an old version", authorization: valid(storageAudience), version: "2016-05-31", status: 403, code: "AuthenticationFailed"},
		{name: "without a version", authorization: valid(storageAudience), version: "-", status: 403, code: "AuthenticationFailed"},
		{name: "of another scheme", authorization: "Basic eDp5", status: 400, code: "InvalidAuthenticationInfo"},
	}
	a := setup(t, Options{Tokens: issuer})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.base == "" {
				tt.base = "https://"
			}
			if tt.version == "" {
				tt.version = protocol.LatestVersion
			}
			r := httptest.NewRequest(http.MethodGet, tt.base+"127.0.0.1"+blobPath, http.NoBody)
			if tt.authorization != "" {
				r.Header.Set("Authorization", tt.authorization)
			}
			if tt.version != "-" {
				r.Header.Set(protocol.HeaderVersion, tt.version)
			}
			res, _ := send(a.Blob(), r)
			wantReply(t, "GET", res, tt.status, tt.code)
			want := ""
			if tt.status == http.StatusUnauthorized {
				want = challenge
			}
			if got := res.Header.Get("WWW-Authenticate"); got != want {
				t.Errorf("WWW-Authenticate = %q, want %q", got, want)
			}
		})
	}
}

// A client of a proxy writes the scheme itself, which is no TLS.
func TestSchemeInTheRequestLineIsNotTLS(t *testing.T) {
	issuer := token.NewIssuer()
	a := setup(t, Options{Tokens: issuer})
	access, err := (&credential{issuer: issuer, life: time.Hour}).GetToken(t.Context(),
		policy.TokenRequestOptions{Scopes: []string{storageResource}})
	if err != nil {
		t.Fatalf("GetToken: %v", err)
	}
	r := httptest.NewRequest(http.MethodGet, "https://127.0.0.1"+blobPath, http.NoBody)
	r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{}))
	r.TLS = nil
	r.Header.Set(protocol.HeaderVersion, protocol.LatestVersion)
	r.Header.Set("Authorization", "Bearer "+access.Token)
	res, _ := send(a.Blob(), r)
	wantReply(t, "GET", res, 403, "AuthenticationFailed")
}

func TestSDKWorksWithTokens(t *testing.T) {
	issuer := token.NewIssuer()
	s := New(Options{Tokens: issuer})
	c := &credential{issuer: issuer, life: time.Hour}
	a := withTokens(t, s, s.Endpoints(), c, s.Transport(), "")
	principals := map[string]string{}
	a.OnCall(func(c Call) Fault { principals[c.Operation] = c.Principal; return Fault{} })
	if err := a.upload(t.Context(), "b", 10); err != nil {
		t.Errorf("Upload: %v", err)
	}
	if _, err := a.queue.EnqueueMessage(t.Context(), "text", nil); err != nil {
		t.Errorf("EnqueueMessage: %v", err)
	}
	if want := map[string]string{blobs.OpPutBlob: "object", queues.OpPutMessage: "object"}; !cmp.Equal(principals, want) {
		t.Errorf("principals = %v, want %v", principals, want)
	}
	if want := []string{"https://storage.azure.com/.default", "https://storage.azure.com/.default"}; !cmp.Equal(c.scopes, want) {
		t.Errorf("the SDK asked for %q, want one token for each client: %q", c.scopes, want)
	}
}

// A client that asks for the wrong resource learns the right one from the
// challenge.
func TestSDKUnderstandsTheChallenge(t *testing.T) {
	issuer := token.NewIssuer()
	s := New(Options{Tokens: issuer})
	c := &credential{issuer: issuer, life: time.Hour}
	a := withTokens(t, s, s.Endpoints(), c, s.Transport(), "https://wrong.example")
	if err := a.upload(t.Context(), "b", 10); err != nil {
		t.Errorf("Upload: %v", err)
	}
	want := []string{
		"https://storage.azure.com/.default", // azqueue does not look at its Audience
		"https://wrong.example/.default", "https://storage.azure.com/.default",
	}
	if !cmp.Equal(c.scopes, want) {
		t.Errorf("the SDK asked for %q, want %q", c.scopes, want)
	}
}

// The SDK gets a new token before the old one ends, and storage looks at every
// request's.
func TestTokensEndInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := token.NewIssuer()
		s := New(Options{Tokens: issuer})
		c := &credential{issuer: issuer, life: 24 * time.Hour}
		a := withTokens(t, s, s.Endpoints(), c, s.Transport(), "")
		old, err := c.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{storageResource}})
		if err != nil {
			t.Fatalf("GetToken: %v", err)
		}
		asked := len(c.scopes)
		for range 3 * 24 {
			time.Sleep(time.Hour)
			if _, err := a.queue.GetProperties(t.Context(), nil); err != nil {
				t.Fatalf("GetProperties: %v", err)
			}
		}
		if got := len(c.scopes) - asked; got != 3 {
			t.Errorf("in 3 days the SDK asked for %d tokens, want 3 of 24h", got)
		}
		if got := a.Counts()[queues.OpGetQueueMetadata]; got != 3*24 {
			t.Errorf("GetQueueMetadata was called %d times, want %d: no token was too old", got, 3*24)
		}
		r := httptest.NewRequest(http.MethodDelete, "https://127.0.0.1"+messagesPath, http.NoBody)
		r.Header.Set(protocol.HeaderVersion, protocol.LatestVersion)
		r.Header.Set("Authorization", "Bearer "+old.Token)
		res, _ := send(a.Queue(), r)
		wantReply(t, "DELETE with the first token", res, 401, "InvalidAuthenticationInfo")
	})
}

func TestTokensOverTLS(t *testing.T) {
	authority, err := tlsca.New()
	if err != nil {
		t.Fatalf("tlsca: %v", err)
	}
	config, err := authority.ServerConfig()
	if err != nil {
		t.Fatalf("ServerConfig: %v", err)
	}
	issuer := token.NewIssuer()
	s := New(Options{Tokens: issuer})
	at, err := s.ListenTLS(Addresses{}, config)
	if err != nil {
		t.Fatalf("ListenTLS: %v", err)
	}
	plain, err := s.Listen(Addresses{})
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: authority.ClientConfig(), ForceAttemptHTTP2: true}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})

	c := &credential{issuer: issuer, life: time.Hour}
	a := withTokens(t, s, at, c, client, "")
	if err := a.upload(t.Context(), "b", 1<<20); err != nil {
		t.Errorf("Upload: %v", err)
	}
	if _, err := a.queue.EnqueueMessage(t.Context(), "text", nil); err != nil {
		t.Errorf("EnqueueMessage: %v", err)
	}
	if got := a.texts(); len(got) != 1 {
		t.Errorf("messages = %q, want one", got)
	}

	// The account's key is good there too.
	if !strings.HasPrefix(s.ConnectionStringAt(at), "DefaultEndpointsProtocol=https;") {
		t.Errorf("connection string = %q, want https", s.ConnectionStringAt(at))
	}
	keyed, err := azblob.NewClientFromConnectionString(s.ConnectionStringAt(at),
		&azblob.ClientOptions{ClientOptions: policy.ClientOptions{Transport: client}})
	if err != nil {
		t.Fatalf("client with a key: %v", err)
	}
	if _, err := keyed.UploadBuffer(t.Context(), "records", "c", []byte("x"), nil); err != nil {
		t.Errorf("Upload with the key: %v", err)
	}

	// A token over the other door is refused, and only HTTP/1.1 is spoken.
	_, plainBlob, _ := strings.Cut(plain, "BlobEndpoint=")
	plainBlob, _, _ = strings.Cut(plainBlob, ";")
	access, _ := c.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{storageResource}})
	for base, want := range map[string]int{at.Blob: 200, plainBlob: 403} {
		r := httpRequest(t, base+"/records/b")
		r.Header.Set(protocol.HeaderVersion, protocol.LatestVersion)
		r.Header.Set("Authorization", "Bearer "+access.Token)
		res, err := client.Do(r)
		if err != nil {
			t.Fatalf("GET %s: %v", base, err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want || res.Proto != "HTTP/1.1" {
			t.Errorf("GET %s = %s %d, want HTTP/1.1 %d", base, res.Proto, res.StatusCode, want)
		}
	}
}

func TestListenTLSRefusesOtherMachines(t *testing.T) {
	if _, err := New(Options{}).ListenTLS(Addresses{Queue: "0.0.0.0:0"}, &tls.Config{MinVersion: tls.VersionTLS12}); err == nil {
		t.Errorf("ListenTLS on 0.0.0.0 succeeded, want a refusal")
	}
}
