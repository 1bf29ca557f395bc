package otlp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Variables of the environment. A variable for all signals has a form for traces too,
// which takes precedence.
const (
	varEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	varTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
)

const (
	// defaultEndpoint is a collector on the same machine.
	defaultEndpoint = "http://localhost:4318"

	// defaultTimeout bounds a request.
	defaultTimeout = 10 * time.Second

	// pause is how long spans are dropped without a try after one has failed.
	pause = 5 * time.Second

	protocol = "http/protobuf"
)

// client sends batches of spans to a collector. It implements [otlptrace.Client].
type client struct {
	url     string
	headers map[string]string
	zip     bool
	timeout time.Duration
	http    *http.Client
	log     *slog.Logger

	mu      sync.Mutex
	since   time.Time // when the collector was lost; zero while it answers
	next    time.Time // no try before
	dropped int       // batches since then
}

// newClient returns a client by the variables of the environment.
func newClient(env func(string) string, log *slog.Logger) (*client, error) {
	get := func(name string) (value, variable string) {
		for _, variable := range []string{"OTEL_EXPORTER_OTLP_TRACES_" + name, "OTEL_EXPORTER_OTLP_" + name} {
			if value := strings.TrimSpace(env(variable)); value != "" {
				return value, variable
			}
		}
		return "", ""
	}
	c := &client{timeout: defaultTimeout, log: log}
	var err error
	if c.url, err = address(get); err != nil {
		return nil, err
	}
	if value, variable := get("PROTOCOL"); value != "" && value != protocol {
		return nil, fmt.Errorf("%s is %q: only %s is supported (port 4318 of most collectors)", variable, value, protocol)
	}
	switch value, variable := get("COMPRESSION"); value {
	case "", "none":
	case "gzip":
		c.zip = true
	default:
		return nil, fmt.Errorf("%s is %q: give gzip or none", variable, value)
	}
	if value, variable := get("TIMEOUT"); value != "" {
		ms, err := strconv.Atoi(value)
		if err != nil || ms <= 0 {
			return nil, fmt.Errorf("%s is %q: give milliseconds", variable, value)
		}
		c.timeout = time.Duration(ms) * time.Millisecond
	}
	value, variable := get("HEADERS")
	if c.headers, err = parseHeaders(value); err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err) // without its value, which may be a secret
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
		ForceAttemptHTTP2: true}
	if transport.TLSClientConfig, err = tlsConfig(get); err != nil {
		return nil, err
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// address returns where traces are posted to.
func address(get func(string) (value, variable string)) (string, error) {
	endpoint, variable := get("ENDPOINT")
	if variable != varTracesEndpoint { // which has the path
		endpoint = strings.TrimSuffix(cmp.Or(endpoint, defaultEndpoint), "/") + "/v1/traces"
	}
	at, err := url.Parse(endpoint)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return "", fmt.Errorf("%s is no address of a collector: give one such as %s", variable, defaultEndpoint)
	}
	return endpoint, nil
}

// parseHeaders reads "name=value,name=value" with percent-encoded values.
func parseHeaders(text string) (map[string]string, error) {
	headers := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || name == "" || err != nil || strings.ContainsAny(name+value, "\r\n") {
			return nil, fmt.Errorf("header %d is not of the form name=value", len(headers)+1)
		}
		headers[name] = value
	}
	return headers, nil
}

// tlsConfig returns the configuration of the variables for certificates; nil for the defaults.
func tlsConfig(get func(string) (value, variable string)) (*tls.Config, error) {
	authority, variable := get("CERTIFICATE")
	cert, _ := get("CLIENT_CERTIFICATE")
	key, keyVariable := get("CLIENT_KEY")
	if authority == "" && cert == "" && key == "" {
		return nil, nil //nolint:nilnil // the defaults
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if authority != "" {
		text, err := os.ReadFile(authority)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: %s has no certificate in PEM", variable, authority)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("client certificate and key (%s): %w", keyVariable, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Start implements [otlptrace.Client].
func (*client) Start(context.Context) error { return nil }

// Stop implements [otlptrace.Client].
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces sends a batch of spans, once. It never returns an error: a batch that
// could not be sent is dropped and the outage logged.
func (c *client) UploadTraces(ctx context.Context, spans []*pb.ResourceSpans) error {
	if !c.mayTry(time.Now()) {
		return nil
	}
	// TracesData is the same on the wire as a request, whose Go type brings gRPC.
	body, err := proto.Marshal(&pb.TracesData{ResourceSpans: spans})
	if err == nil {
		err = c.send(ctx, body)
	}
	c.report(time.Now(), err)
	return nil
}

func (c *client) send(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var content io.Reader = bytes.NewReader(body)
	headers := http.Header{"Content-Type": {"application/x-protobuf"}}
	if c.zip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(body); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		content = &packed
		headers.Set("Content-Encoding", "gzip")
	}
	for name, value := range maps.All(c.headers) {
		headers.Set(name, value)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, content)
	if err != nil {
		return err
	}
	request.Header = headers
	reply, err := c.http.Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err // without the address, which may have a secret
	}
	if err != nil {
		return err
	}
	defer func() { _ = reply.Body.Close() }()
	const most = 64 << 10 // of an answer that is not looked at
	_, _ = io.Copy(io.Discard, io.LimitReader(reply.Body, most))
	if reply.StatusCode < 200 || reply.StatusCode > 299 {
		return fmt.Errorf("the collector answers %s", reply.Status)
	}
	return nil
}

// mayTry reports whether to send a batch, or to drop it because one has just failed.
func (c *client) mayTry(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.next) {
		c.dropped++
		return false
	}
	return true
}

// report logs the beginning and the end of an outage.
func (c *client) report(now time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil && c.since.IsZero():
		c.log.Warn("traces are not sent; they are dropped until the collector answers", "address", withoutSecrets(c.url), "error", err)
		c.since = now
		fallthrough
	case err != nil:
		c.dropped++
		c.next = now.Add(pause)
	case !c.since.IsZero():
		c.log.Info("traces are sent again", "after", now.Sub(c.since).Round(time.Second), "calls_failed", c.dropped)
		c.since, c.next, c.dropped = time.Time{}, time.Time{}, 0
	}
}

// withoutSecrets returns an address without user and query.
func withoutSecrets(address string) string {
	at, err := url.Parse(address)
	if err != nil {
		return ""
	}
	at.User, at.RawQuery = nil, ""
	return at.String()
}
