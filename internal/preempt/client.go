package preempt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/retry"
)

// DefaultEndpoint is where every Azure VM in a virtual network reaches its own
// metadata service. The address is not routed and never leaves the host.
const DefaultEndpoint = "http://169.254.169.254"

// instanceVersion is the api-version of instance metadata; version.go has the versions of
// scheduled events.
const instanceVersion = "2021-02-01"

// maxAnswer is far above the largest real answer: an instance with 64 KiB of
// user data, or one event for each of the 1,000 VMs of a scale set.
const maxAnswer = 1 << 20

// dialTimeout bounds the connection alone; every call is bounded by its context.
const dialTimeout = 2 * time.Second

// Client sends requests to the instance metadata service. It is safe for concurrent
// use, and all its calls share one [Budget].
type Client struct {
	base    string
	http    *http.Client
	budget  Budget
	queued  queuedPolls // polls that wait for the budget
	version eventsVersion
	shared  Identities // nil for none
}

// Option changes how a Client works.
type Option func(*Client)

// WithTransport sends requests through rt instead of the client's own
// transport. It is for tests: rt must not use a proxy.
func WithTransport(rt http.RoundTripper) Option {
	return func(c *Client) { c.http.Transport = rt }
}

// NewClient returns a client for the service at endpoint, an http or https URL such
// as [DefaultEndpoint] or http://127.0.0.1:1234/vms/a; a path is a prefix of the
// service's paths. It sends no request yet.
func NewClient(endpoint string, options ...Option) (*Client, error) {
	base, err := parseEndpoint(endpoint)
	if err != nil {
		return nil, fmt.Errorf("metadata endpoint: %w", err)
	}
	c := &Client{base: base, queued: newQueued(), budget: NewBudget(budgetRequests, budgetWindow), http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.version.set(newestEvents, generalEvents)
	for _, option := range options {
		option(c)
	}
	if c.http.Transport == nil {
		c.http.Transport = newTransport()
	}
	return c, nil
}

// parseEndpoint does not quote the endpoint in its errors: it may hold a password.
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

// newTransport returns a transport that uses no proxy. The default transport reads a
// proxy's address from the environment, and the service refuses forwarded requests.
// It keeps an idle connection for each poll that may be in flight.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:               nil,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost: maxInFlight + maxPatient,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}
}

// Close closes idle connections. It does not affect calls in flight.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Events reads the scheduled events of this VM's placement group. The first call of a
// VM activates the service and may take two minutes.
//
// The error is a [StatusError], wraps [ErrMalformed] or [ErrTooLarge], or comes from the
// connection or ctx.
func (c *Client) Events(ctx context.Context) (Document, error) {
	doc, _, err := c.events(ctx, c.version.get())
	return doc, err
}

// events reads the scheduled events in a version, or in the older one if the service
// refuses that. It returns the version that was asked last.
func (c *Client) events(ctx context.Context, version string) (Document, string, error) {
	a, version, err := c.askEvents(ctx, Poll, http.MethodGet, version, nil)
	if err != nil {
		return Document{}, version, fmt.Errorf("read scheduled events: %w", err)
	}
	doc, err := parseDocument(a.body)
	if err != nil {
		return Document{}, version, fmt.Errorf("read scheduled events: %w", err)
	}
	doc.Date, doc.ReceivedAt = a.date, a.receivedAt
	return doc, version, nil
}

// Instance reads the metadata of this VM. Errors are as for [Client.Events].
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

// answer is a response of the service with status 200.
type answer struct {
	body       []byte
	date       time.Time // zero without a readable Date header
	receivedAt time.Time
}

// ask sends one request for path as soon as the budget allows, with body unless it is
// empty. Any status but 200 is an error.
func (c *Client) ask(ctx context.Context, u Urgency, method, path, version string, body []byte) (answer, error) {
	if err := c.wait(ctx, u); err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path+"?api-version="+version, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Metadata", "true") // required; a redirected request does not have it
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

const (
	// acknowledgeTries is how often one acknowledgement is sent at most. Without one
	// the event starts at its NotBefore.
	acknowledgeTries = 4

	// acknowledgeTimeout bounds one try. It is longer than a poll's, since nothing urgent
	// waits for the answer.
	acknowledgeTimeout = 15 * time.Second
)

// Acknowledge sends a StartRequest: the event with this id may start before its
// NotBefore, for all its Resources and not for this VM alone. The service also
// accepts it when the event was acknowledged before.
//
// Transient errors are retried, four attempts in all, in both versions in turn. The error is a [StatusError] of
// status 400 when the event is no longer listed, otherwise as for [Client.Events].
func (c *Client) Acknowledge(ctx context.Context, id string) error {
	body, err := json.Marshal(startRequests{[]startRequest{{id}}})
	if err != nil {
		return fmt.Errorf("acknowledge event %s: %w", id, err)
	}
	version := c.version.get()
	for failures := 0; ; {
		err := c.tryAcknowledge(ctx, version, body)
		if err == nil {
			return nil
		}
		version = c.version.other(version)
		if failures++; failures == acknowledgeTries || !isTransient(err) {
			return fmt.Errorf("acknowledge event %s: %w", id, err)
		}
		if stop := retry.Sleep(ctx, retryDelay(failures, isThrottled(err))); stop != nil {
			return fmt.Errorf("acknowledge event %s: %w (last attempt: %w)", id, stop, err)
		}
	}
}

func (c *Client) tryAcknowledge(ctx context.Context, version string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, acknowledgeTimeout)
	defer cancel()
	_, _, err := c.askEvents(ctx, Later, http.MethodPost, version, body)
	return err
}

// startRequests is the body of an acknowledgement.
type startRequests struct {
	StartRequests []startRequest
}

type startRequest struct {
	EventID string `json:"EventId"`
}

// isTransient reports whether a request that failed with err may succeed when repeated. A
// request that the service rejected as invalid does not.
func isTransient(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	if !ok {
		return true
	}
	switch status.Status {
	case http.StatusNotFound, http.StatusGone, http.StatusTooManyRequests:
		return true
	}
	return status.Status >= http.StatusInternalServerError
}

// ErrTooLarge is the error of an answer longer than any real one.
var ErrTooLarge = errors.New("answer too large")

// StatusError is a response of the metadata service with a status other than 200.
// 404, 410, 429 and 5xx are transient; the service asks clients to retry (410 for up
// to 70 s). A redirect is an error too: the service sends none, so it comes from
// something in between.
type StatusError struct {
	// Status is the HTTP status code.
	Status int

	// Message is the error text of the response, on one line and truncated. It may be
	// empty.
	Message string
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("metadata service answered %d %s", e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// statusError reads the "error" field of an error response.
func statusError(status int, body []byte) *StatusError {
	var answer struct{ Error looseText }
	_ = json.Unmarshal(trimBOM(body), &answer) // a body that is not JSON has no message
	return &StatusError{Status: status, Message: oneLine(string(answer.Error))}
}

// oneLine makes untrusted text safe to log: printable, on one line, short.
func oneLine(text string) string {
	const most = 200
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if runes := []rune(clean); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return clean
}

// isThrottled reports whether the service refused a request because of too many.
func isThrottled(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.Status == http.StatusTooManyRequests
}
