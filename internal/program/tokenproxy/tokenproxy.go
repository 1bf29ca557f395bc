// Package tokenproxy serves access tokens of the worker's identity to the programs
// of jobs: over HTTP on loopback, for the resources that the job's kind names, and
// at a limited rate. The programs cannot reach the metadata service, where they
// would get tokens for any resource and exhaust the rate limit that the worker
// needs to detect evictions.
//
// It speaks the protocol of managed identities in Azure App Service, which the Azure SDKs
// of all languages speak without configuration ("REST endpoint reference" of
// "How to use managed identities for App Service", version 2019-08-01):
//
//	GET IDENTITY_ENDPOINT?api-version=2019-08-01&resource=https://storage.azure.com/
//	X-IDENTITY-HEADER: IDENTITY_HEADER
package tokenproxy

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/host/connections"
)

const (
	// burst and perSecond bound the requests of one job.
	burst     = 10
	perSecond = 1

	// maxConnections bounds the open connections of all jobs together. Each costs a
	// descriptor and some 9 KiB of the worker.
	maxConnections = 256

	// answerTimeout bounds one request, which may wait for a sign-in.
	answerTimeout = 30 * time.Second
)

// Source returns a token for a resource such as https://storage.azure.com/.
type Source func(ctx context.Context, resource string) (token string, expires time.Time, err error)

// Proxy answers requests until it is closed.
type Proxy struct {
	source   Source
	log      *slog.Logger
	listener net.Listener
	http     *http.Server
	serving  sync.WaitGroup

	mu     sync.Mutex
	grants map[string]*grant // by secret
}

// grant holds the resources that one job may ask for.
type grant struct {
	resources []string

	mu    sync.Mutex
	used  float64 // of the burst
	since time.Time
}

// Listen starts a proxy on a free port of loopback.
func Listen(source Source, log *slog.Logger) (*Proxy, error) {
	p, err := listen(source, log)
	if err != nil {
		return nil, err
	}
	p.serve()
	return p, nil
}

// listen returns a proxy with a free port that does not serve yet.
func listen(source Source, log *slog.Logger) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // listening on an IP address does not wait
	if err != nil {
		return nil, fmt.Errorf("listen for programs that need tokens: %w", err)
	}
	p := &Proxy{source: source, log: log, listener: listener, grants: map[string]*grant{}}
	p.http = &http.Server{
		Handler: p, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second,
		WriteTimeout: answerTimeout + 5*time.Second, IdleTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // broken connections of programs
	}
	connections.Limit(p.http, maxConnections)
	return p, nil
}

func (p *Proxy) serve() {
	p.serving.Go(func() { _ = p.http.Serve(p.listener) }) // returns when Close closes the listener
}

// Close stops the proxy.
func (p *Proxy) Close() {
	_ = p.http.Close()
	p.serving.Wait()
}

// Grant allows requests with the secret to get tokens for these resources from the
// endpoint, until revoke is called.
func (p *Proxy) Grant(resources []string) (endpoint, secret string, revoke func()) {
	secret = rand.Text()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants[secret] = &grant{resources: resources}
	return "http://" + p.listener.Addr().String() + "/token", secret, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.grants, secret)
	}
}

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	g := p.grants[r.Header.Get("X-Identity-Header")]
	p.mu.Unlock()
	resource := r.URL.Query().Get("resource")
	switch {
	case r.URL.Path != "/token" || r.Method != http.MethodGet:
		refuse(w, http.StatusNotFound, "ask for GET /token")
	case g == nil:
		refuse(w, http.StatusUnauthorized, "X-IDENTITY-HEADER is not that of a running job")
	case !g.allows(resource):
		refuse(w, http.StatusForbidden, fmt.Sprintf("the kind of this job allows tokens for %s only (tokens in the kinds file)",
			strings.Join(g.resources, ", ")))
	case !g.take(time.Now()):
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "a job may ask for one token a second; keep a token until it expires")
	default:
		p.answer(w, r, resource)
	}
}

func (p *Proxy) answer(w http.ResponseWriter, r *http.Request, resource string) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	token, expires, err := p.source(ctx, resource)
	if err != nil {
		p.log.WarnContext(ctx, "program did not get the access token that it asked for", "resource", resource, "error", err)
		refuse(w, http.StatusInternalServerError, "the worker got no token; its log says why")
		return
	}
	reply(w, http.StatusOK, map[string]string{
		"access_token": token, "expires_on": strconv.FormatInt(expires.Unix(), 10), "resource": resource, "token_type": "Bearer",
	})
}

// allows compares resources without a slash at the end: SDKs write them both ways.
func (g *grant) allows(resource string) bool {
	return slices.ContainsFunc(g.resources, func(r string) bool {
		return strings.TrimSuffix(r, "/") == strings.TrimSuffix(resource, "/")
	})
}

// take reports whether another request is within the rate at now.
func (g *grant) take(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used = max(0, g.used-now.Sub(g.since).Seconds()*perSecond)
	g.since = now
	if g.used > burst-1 {
		return false
	}
	g.used++
	return true
}

func refuse(w http.ResponseWriter, status int, message string) {
	reply(w, status, map[string]any{"statusCode": status, "message": message})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the program may have ended
}
