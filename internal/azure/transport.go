package azure

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/haste"
)

// Bounds of one call. A call that needs less time, as in a drain, is bounded by
// its context; these keep a call with all the time in the world from hanging.
const (
	maxRetries    = 3
	retryDelay    = 200 * time.Millisecond
	maxRetryDelay = 3 * time.Second
	tryTimeout    = 30 * time.Second // of one try, its body included
	dialTimeout   = 5 * time.Second
	keptIdle      = 90 * time.Second
	keptIdleLocal = 4 * time.Second // Azurite closes idle connections after 5 s
)

// defaultConcurrency is used where a Config names none.
const defaultConcurrency = 16

func (c Config) clientOptions(tls bool) policy.ClientOptions {
	transport := c.Transport
	if transport == nil {
		transport = &http.Client{Transport: newTransport(c.Concurrency, tls), CheckRedirect: refuseRedirects}
	}
	retry := policy.RetryOptions{MaxRetries: maxRetries, RetryDelay: retryDelay, MaxRetryDelay: maxRetryDelay, TryTimeout: tryTimeout}
	if c.Retry != nil {
		retry = *c.Retry
	}
	return policy.ClientOptions{
		Transport: discreet{transport},
		Telemetry: policy.TelemetryOptions{ApplicationID: telemetryID(c.Version)},
		Retry:     retry,
	}
}

// bounded returns options for a client whose tries are cut off when time is
// short. It comes after all other policies.
func (c Config) bounded(options policy.ClientOptions) policy.ClientOptions {
	last := haste.Policy{}
	if wrapped, ok := options.Transport.(discreet); ok {
		if client, ok := wrapped.Transporter.(interface{ CloseIdleConnections() }); ok {
			last.CloseIdle = client.CloseIdleConnections
		}
	}
	options.PerRetryPolicies = append(slices.Clip(options.PerRetryPolicies), last)
	return options
}

// discreet keeps the query of an address out of errors: it may be a shared access
// signature, and what a handler returns goes into records and messages as it is.
type discreet struct{ policy.Transporter }

// Do implements [policy.Transporter].
func (d discreet) Do(r *http.Request) (*http.Response, error) {
	resp, err := d.Transporter.Do(r)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		failed.URL, _, _ = strings.Cut(failed.URL, "?")
	}
	return resp, err
}

// newTransport keeps a connection for each concurrent call. The SDK's default
// keeps 10 per host, so that of 128 callers two in three would open a new TLS
// connection for each call.
//
// It speaks HTTP/1.1 alone, as storage does: a call that is cut off then closes
// its connection, while over HTTP/2 its retry would go out on the same one.
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
	}
}

// telemetryID keeps to the 24 characters that the SDK allows.
func telemetryID(version string) string {
	id := "spotworker"
	if version != "" {
		id += "/" + version
	}
	return id[:min(len(id), 24)]
}

// refuseRedirects makes an HTTP client return a redirect as the answer that it is.
// Neither storage nor a token endpoint sends one, and following it would take
// tokens, or the header that proves who asks for one, to another host.
func refuseRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// newIdentityTransport never uses a proxy: the metadata service that gives out
// tokens answers its own VM only, and refuses what a proxy forwards.
func newIdentityTransport() *http.Transport {
	return &http.Transport{
		Proxy:           nil,
		DialContext:     (&net.Dialer{Timeout: dialTimeout}).DialContext,
		IdleConnTimeout: keptIdleLocal,
	}
}
