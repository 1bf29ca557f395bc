package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// timeout is the time limit of one request.
const timeout = 10 * time.Second

// maxReply is how much of a refusal is read, in bytes.
const maxReply = 512

// target is an endpoint that metrics are posted to.
type target struct {
	url    string
	token  func(context.Context) (string, error) // nil where the endpoint needs none
	client *http.Client
}

// newTarget returns the endpoint of that URL, without following redirects: they would take
// the token elsewhere.
func newTarget(endpoint string, token func(context.Context) (string, error)) (target, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return target{}, fmt.Errorf("%q is no URL: give one that begins with https://", endpoint)
	}
	return target{endpoint, token, &http.Client{
		Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// refusal is the error of an endpoint that answered.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the endpoint answers %d %s: %q", r.status, http.StatusText(r.status), r.text)
}

// post sends a body. Another status than 2xx is a [*refusal].
func (t target) post(ctx context.Context, body []byte, header map[string]string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	if t.token != nil {
		token, err := t.token(ctx)
		if err != nil {
			return fmt.Errorf("sign in for the metrics: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	reply, err := t.client.Do(req)
	if err != nil {
		return err
	}
	text, readErr := io.ReadAll(io.LimitReader(reply.Body, maxReply))
	if err := errors.Join(readErr, reply.Body.Close()); err != nil {
		return err
	}
	if reply.StatusCode/100 != 2 {
		return &refusal{reply.StatusCode, string(text)}
	}
	return nil
}
