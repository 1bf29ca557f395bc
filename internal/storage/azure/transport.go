package azure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/storage/hedge"
)

// Limits of one call. A call with less time, as in a drain, is limited by its
// context; these prevent a call without a deadline from hanging.
const (
	maxRetries    = 3
	retryDelay    = 200 * time.Millisecond
	maxRetryDelay = 3 * time.Second
	tryTimeout    = 30 * time.Second // of one try, including the body
	dialTimeout   = 5 * time.Second
	keptIdle      = 90 * time.Second
	keptIdleLocal = 4 * time.Second // Azurite closes idle connections after 5 s
)

// defaultConcurrency is the default of AccountConfig.Concurrency.
const defaultConcurrency = 16

func (c AccountConfig) clientOptions(tls bool) policy.ClientOptions {
	transport := c.Transport
	if transport == nil {
		transport = oneWrite{&http.Client{Transport: newTransport(c.Concurrency, tls), CheckRedirect: refuseRedirects}}
	}
	retry := policy.RetryOptions{MaxRetries: maxRetries, RetryDelay: retryDelay, MaxRetryDelay: maxRetryDelay, TryTimeout: tryTimeout}
	if c.Retry != nil {
		retry = *c.Retry
	}
	return policy.ClientOptions{
		Transport: redacted{Transporter: transport},
		Telemetry: policy.TelemetryOptions{ApplicationID: telemetryID(c.Version)},
		Retry:     retry,
	}
}

// bounded returns the policy that limits the tries of a client with these options, and
// the options without the SDK's timeout of a try, whose place it takes. That policy comes
// after all others.
func bounded(options policy.ClientOptions) (hedge.Policy, policy.ClientOptions) {
	last := hedge.Policy{TryTimeout: options.Retry.TryTimeout}
	options.Retry.TryTimeout = 0
	if wrapped, ok := options.Transport.(redacted); ok {
		if client, ok := wrapped.Transporter.(interface{ CloseIdleConnections() }); ok {
			last.CloseIdle = client.CloseIdleConnections
		}
	}
	return last, options
}

// redacted removes the query of the URL from errors: it may contain a shared access
// signature, and an error that a handler returns is recorded unchanged. It checks each
// answer: see [checked].
type redacted struct {
	policy.Transporter
}

// Do implements [policy.Transporter].
func (d redacted) Do(r *http.Request) (*http.Response, error) {
	resp, err := d.Transporter.Do(r)
	if err == nil {
		resp, err = checked(r, resp)
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		failed.URL, _, _ = strings.Cut(failed.URL, "?")
	}
	return resp, err
}

// smallBody is the largest request body that oneWrite copies, in bytes. Of larger ones
// the additional write is a small part of the cost.
const smallBody = 64 << 10

// oneWrite sends a request with a small body in one write. Package net/http writes the
// header alone first unless it knows that the body is in memory, and the SDK wraps each
// body in a type of its own.
type oneWrite struct{ *http.Client }

// Do implements [policy.Transporter].
func (o oneWrite) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.ContentLength <= 0 || r.ContentLength > smallBody {
		return o.Client.Do(r)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return nil, fmt.Errorf("read the body of a request: %w", err)
	}
	once := *r
	once.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	once.Body, _ = once.GetBody()
	return o.Client.Do(&once)
}

// newTransport keeps one connection open for each concurrent call. The SDK's default
// of 10 per host would make most of 128 concurrent calls open a new TLS connection.
//
// It uses only HTTP/1.1, as storage does: a call that is cut off then closes its
// connection, while over HTTP/2 its retry would use the same one.
//
// It asks for no compression, which storage does not offer: a blob that was stored
// compressed would be decompressed on the way, and have another size and hash.
func newTransport(concurrency int, tls bool) *http.Transport {
	if concurrency <= 0 {
		concurrency = defaultConcurrency
	}
	idle := keptIdle
	if !tls {
		idle = keptIdleLocal
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		MaxIdleConns:          0, // no limit over all hosts; there are two
		MaxIdleConnsPerHost:   concurrency,
		IdleConnTimeout:       idle,
		TLSHandshakeTimeout:   dialTimeout,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
	}
}

// telemetryID returns the application id, of at most the 24 characters that the SDK
// allows.
func telemetryID(version string) string {
	id := "spotworker"
	if version != "" {
		id += "/" + version
	}
	return id[:min(len(id), 24)]
}

// refuseRedirects makes an HTTP client return redirects instead of following them.
// Neither storage nor a token endpoint sends one, and following it would send tokens,
// or the header that authenticates a token request, to another host.
func refuseRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// newIdentityTransport returns a transport without a proxy: the metadata service,
// which issues tokens, answers only its own VM and refuses forwarded requests.
func newIdentityTransport() *http.Transport {
	return &http.Transport{
		Proxy:           nil,
		DialContext:     (&net.Dialer{Timeout: dialTimeout}).DialContext,
		IdleConnTimeout: keptIdleLocal,
	}
}
