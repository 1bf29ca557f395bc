package prices

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	armruntime "github.com/Azure/azure-sdk-for-go/sdk/azcore/arm/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// The services' addresses in the public cloud.
const (
	RetailEndpoint     = "https://prices.azure.com"
	ManagementEndpoint = "https://management.azure.com"
)

// Limits of one request. A service that asks to wait for longer than longestWait is not
// waited for: its gap says when to try again.
const (
	maxRetries  = 3
	retryDelay  = time.Second
	longestWait = 30 * time.Second
	tryTimeout  = 30 * time.Second
)

// Options say how the services are reached.
type Options struct {
	// RetailEndpoint and ManagementEndpoint replace the public cloud's addresses.
	RetailEndpoint, ManagementEndpoint string

	// Credential signs in. Without it only retail prices are asked for.
	Credential azcore.TokenCredential

	// Version names the program in the User-Agent header.
	Version string

	// Transport replaces the HTTP transport. For tests.
	Transport policy.Transporter
}

// Client asks the services.
type Client struct {
	credential azcore.TokenCredential
	retail     runtime.Pipeline // without sign-in
	retailURL  string
	management runtime.Pipeline
	armURL     string
	audience   string
}

// New returns a client. It sends nothing.
func New(o Options) (*Client, error) {
	retailURL, err := address("--prices-endpoint", o.RetailEndpoint, RetailEndpoint)
	if err != nil {
		return nil, err
	}
	armURL, err := address("--management-endpoint", o.ManagementEndpoint, ManagementEndpoint)
	if err != nil {
		return nil, err
	}
	name := "spotworker"
	if o.Version != "" {
		name += "/" + o.Version
	}
	options := policy.ClientOptions{
		Transport: o.Transport,
		Telemetry: policy.TelemetryOptions{ApplicationID: name[:min(len(name), 24)]},
		Retry:     policy.RetryOptions{MaxRetries: maxRetries, RetryDelay: retryDelay, MaxRetryDelay: longestWait, TryTimeout: tryTimeout},
	}
	c := &Client{
		credential: o.Credential, retailURL: retailURL, armURL: armURL, audience: ManagementEndpoint,
		retail: runtime.NewPipeline("spotworker", o.Version, runtime.PipelineOptions{}, &options),
	}
	if o.Credential == nil {
		return c, nil
	}
	// Tokens are for the public cloud's audience, also where its address is another.
	signedIn := options
	signedIn.Cloud = cloud.Configuration{
		ActiveDirectoryAuthorityHost: cloud.AzurePublic.ActiveDirectoryAuthorityHost,
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: armURL,
			Audience: c.audience}},
	}
	signedIn.InsecureAllowCredentialWithHTTP = strings.HasPrefix(armURL, "http://") // loopback, by address
	// Registering a resource provider would change the subscription.
	armOptions := &arm.ClientOptions{ClientOptions: signedIn, DisableRPRegistration: true}
	if c.management, err = armruntime.NewPipeline("spotworker", o.Version, o.Credential, runtime.PipelineOptions{}, armOptions); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", armURL, err)
	}
	return c, nil
}

// address checks an endpoint. Plain HTTP is allowed to this machine only.
func address(flag, given, usual string) (string, error) {
	if given == "" {
		return usual, nil
	}
	u, err := url.Parse(given)
	if err == nil && (u.User != nil || u.RawQuery != "") {
		return "", fmt.Errorf("%s must have no user and no query; it may hold a secret and is not repeated here", flag)
	}
	if err != nil || u.Host == "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("%s %q is not an address such as %s", flag, given, usual)
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Scheme != "https" && !(u.Scheme == "http" && local) {
		return "", fmt.Errorf("%s %q: only https is used, since tokens are sent; plain http is for this machine", flag, given)
	}
	return u.Scheme + "://" + u.Host, nil
}

// signIn gets a token, so that all sources that need one fail in one way and at once.
func (c *Client) signIn(ctx context.Context) error {
	if c.credential == nil {
		return errNoSignIn
	}
	_, err := c.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{c.audience + "/.default"}})
	return err
}

var errNoSignIn = errors.New("no sign-in is configured")

// mostPages ends a listing that does not end.
const mostPages = 40

// pageError is a failure after the first page.
type pageError struct {
	page int
	err  error
}

func (e *pageError) Error() string { return fmt.Sprintf("page %d: %v", e.page, e.err) }
func (e *pageError) Unwrap() error { return e.err }

// collect returns the items of all pages of a listing. After an error in the middle it returns the
// items of the pages before. ask asks for the page that a link leads to, from first on; the last page has
// no link.
func collect[T any](first string, ask func(link string) (items []T, next string, err error)) (all []T, _ error) {
	for page, link := 1, first; ; page++ {
		items, next, err := ask(link)
		all = append(all, items...)
		switch {
		case err != nil && page > 1:
			return all, &pageError{page, err}
		case err != nil || next == "":
			return all, err
		case next == link:
			return all, &pageError{page + 1, errors.New("its link leads nowhere")}
		case page == mostPages:
			return all, &pageError{page + 1, errors.New("there are more pages than expected")}
		}
		link = next
	}
}

// get sends a GET request and decodes the answer.
func get(ctx context.Context, p runtime.Pipeline, target string, into any) error {
	req, err := runtime.NewRequest(ctx, http.MethodGet, target)
	if err != nil {
		return err
	}
	return send(p, req, into)
}

// post sends a body to the resource manager and decodes the answer.
func post(ctx context.Context, c *Client, target string, body, into any) error {
	req, err := runtime.NewRequest(ctx, http.MethodPost, target)
	if err != nil {
		return err
	}
	if err := runtime.MarshalAsJSON(req, body); err != nil {
		return err
	}
	return send(c.management, req, into)
}

// encode encodes a query. Spaces are %20: OData services do not agree on +.
func encode(query url.Values) string { return strings.ReplaceAll(query.Encode(), "+", "%20") }

// send sends a request and decodes its answer, which must be JSON with status 200.
func send(p runtime.Pipeline, req *policy.Request, into any) error {
	req.Raw().Header.Set("Accept", "application/json")
	resp, err := p.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !runtime.HasStatusCode(resp, http.StatusOK) {
		return runtime.NewResponseError(resp)
	}
	if err := runtime.UnmarshalAsJSON(resp, into); err != nil {
		return &unreadableError{err}
	}
	return nil
}

// unreadableError is an answer that differs from the service's documentation.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string { return "the answer cannot be read: " + e.err.Error() }
func (e *unreadableError) Unwrap() error { return e.err }
