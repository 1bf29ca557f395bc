package preempt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// DefaultEndpoint is where every Azure VM in a virtual network reaches its own
// metadata service. The address is not routed and never leaves the host.
const DefaultEndpoint = "http://169.254.169.254"

// instanceVersion is the version of the instance metadata that is asked for;
// version.go has those of scheduled events.
const instanceVersion = "2021-02-01"

// maxAnswer is far above the largest real answer: an instance with 64 KiB of
// user data, or one event for each of the 1,000 VMs of a scale set.
const maxAnswer = 1 << 20

// dialTimeout bounds the connection alone; every call is bounded by its context.
const dialTimeout = 2 * time.Second

// Client asks an instance metadata service. It is safe for concurrent use, and
// all its calls share one [Budget] of requests.
type Client struct {
	base    string
	http    *http.Client
	budget  Budget
	queued  queued // polls that wait for the budget
	version eventsVersion
}

// Option changes how a Client works.
type Option func(*Client)

// WithTransport sends requests through rt instead of the client's own
// transport. It is for tests: rt must not use a proxy.
func WithTransport(rt http.RoundTripper) Option {
	return func(c *Client) { c.http.Transport = rt }
}

// NewClient returns a client for the service at endpoint, an http or https URL
// such as [DefaultEndpoint] or http://127.0.0.1:1234/vms/a; a path is put
// before the paths of the service. It sends nothing yet.
func NewClient(endpoint string, options ...Option) (*Client, error) {
	base, err := parseEndpoint(endpoint)
	if err != nil {
		return nil, fmt.Errorf("metadata endpoint: %w", err)
	}
	c := &Client{base: base, queued: newQueued(), budget: NewBudget(budgetRequests, budgetWindow), http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.version.set(EventsVersionAuto)
	for _, option := range options {
		option(c)
	}
	if c.http.Transport == nil {
		c.http.Transport = newTransport()
	}
	return c, nil
}

// parseEndpoint does not quote what it refuses: it may hold a password.
func parseEndpoint(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "", errors.New("it is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("want a URL that starts with http:// or https://")
	case u.Hostname() == "":
		return "", errors.New("it names no host")
	case u.User != nil || strings.ContainsAny(endpoint, "?#"):
		return "", errors.New("want a URL of scheme, host, port and path only")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// newTransport returns a transport of our own. The default one reads the
// proxy's address from the environment, and the service refuses what a proxy
// forwards. Idle connections are kept for one poll of each in flight.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:               nil,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost: maxInFlight,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}
}

// Close closes idle connections. Calls under way are not affected.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Events asks for the scheduled events of this VM's placement group. The first
// call of a VM switches the service on and may take two minutes.
//
// The error is a [StatusError], wraps [ErrMalformed] or [ErrTooLarge], or is
// that of the connection or of ctx.
func (c *Client) Events(ctx context.Context) (Document, error) {
	a, err := c.askEvents(ctx, Poll, http.MethodGet, nil)
	if err != nil {
		return Document{}, fmt.Errorf("read scheduled events: %w", err)
	}
	doc, err := parseDocument(a.body)
	if err != nil {
		return Document{}, fmt.Errorf("read scheduled events: %w", err)
	}
	doc.Date, doc.ReceivedAt = a.date, a.receivedAt
	return doc, nil
}

// Instance asks what this VM is. Errors are as for [Client.Events].
func (c *Client) Instance(ctx context.Context) (Instance, error) {
	a, err := c.ask(ctx, Later, http.MethodGet, "/metadata/instance/compute", instanceVersion, nil)
	if err != nil {
		return Instance{}, fmt.Errorf("read instance metadata: %w", err)
	}
	instance, err := parseInstance(a.body)
	if err != nil {
		return Instance{}, fmt.Errorf("read instance metadata: %w", err)
	}
	return instance, nil
}

// answer is a 200 of the service.
type answer struct {
	body       []byte
	date       time.Time // zero without a readable Date header
	receivedAt time.Time
}

// ask sends one request for path, with body if that is not empty, when the
// budget allows. Any status but 200 is an error.
func (c *Client) ask(ctx context.Context, u Urgency, method, path, version string, body []byte) (answer, error) {
	if err := c.wait(ctx, u); err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path+"?api-version="+version, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Metadata", "true") // required, and never added by a redirected request
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	receivedAt := time.Now()
	text, err := readAnswer(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return answer{}, statusError(resp.StatusCode, text)
	}
	if err != nil {
		return answer{}, err
	}
	date, _ := http.ParseTime(resp.Header.Get("Date"))
	return answer{body: text, date: date, receivedAt: receivedAt}, nil
}

func readAnswer(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err != nil {
		return body, err
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, maxAnswer)
	}
	return body, nil
}
