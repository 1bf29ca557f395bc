package hook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/template"
	"time"
)

const (
	// tries is how often an event is posted at most, and tryLimit how long one try may take.
	tries    = 4
	tryLimit = 8 * time.Second

	// firstPause is the pause after the first try. Each pause is twice as long as the one before.
	firstPause = time.Second
)

// WebhookConfig describes a webhook.
type WebhookConfig struct {
	// URL gets the requests. It may be a secret: it is never logged.
	URL string

	// Secret signs the requests: "whsec_" and 24 to 64 bytes in base64. Empty: no signature.
	Secret string

	// Template is the text of a template for the body, which makes JSON. Empty: the form of
	// Standard Webhooks, with the line as data.
	Template string
}

// webhook posts events in the form of Standard Webhooks, version 1.
type webhook struct {
	url    *url.URL
	key    []byte             // nil: no signature
	body   *template.Template // nil: the standard body
	client *http.Client
	pause  time.Duration
}

// IsURL reports whether text is the address of a webhook and not the name of a program.
func IsURL(text string) bool {
	scheme, _, ok := strings.Cut(strings.ToLower(text), "://")
	return ok && (scheme == "http" || scheme == "https")
}

// Webhook returns a Hook that posts events. It logs to log, and must be closed. An error says
// which setting is wrong, without its value.
func Webhook(c WebhookConfig, log *slog.Logger) (*Hook, error) {
	w, err := newWebhook(c)
	if err != nil {
		return nil, err
	}
	return start(w, log, closeLimit), nil
}

func newWebhook(c WebhookConfig) (*webhook, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "":
		return nil, errors.New("the address of the webhook is not valid")
	case u.User != nil:
		return nil, errors.New("the address of the webhook has a user or a password, which is not supported")
	}
	key, err := parseSecret(c.Secret)
	if err != nil {
		return nil, err
	}
	body, err := parseTemplate(c.Template)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true} // events are rare
	// A redirect is refused: it would send the event elsewhere.
	client := &http.Client{
		Timeout: tryLimit, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &webhook{url: u, key: key, body: body, client: client, pause: firstPause}, nil
}

func parseSecret(text string) (key []byte, err error) {
	const prefix, least, most = "whsec_", 24, 64
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	encoded, ok := strings.CutPrefix(text, prefix)
	key, err = base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < least || len(key) > most {
		return nil, fmt.Errorf("the secret is not %s and %d to %d bytes in base64", prefix, least, most)
	}
	return key, nil
}

// parseTemplate returns the template, after it made JSON for each event with values that need
// quotes.
func parseTemplate(text string) (*template.Template, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	t, err := template.New("body").Funcs(template.FuncMap{"json": encode}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the template of the body: %w", err)
	}
	for message, event := range events {
		line, err := json.Marshal(map[string]string{
			"time": "2026-03-09T12:00:00Z", "level": "INFO", "msg": message, "worker": "a \"b\"\n", "vm": `c\d`,
		})
		if err != nil {
			return nil, err
		}
		if _, err := fill(t, event, line); err != nil {
			return nil, fmt.Errorf("the template of the body, event %s: %w", event, err)
		}
	}
	return t, nil
}

func encode(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// fill returns the body for a line. The template's data are the keys of the line, and event.
func fill(t *template.Template, event string, line []byte) ([]byte, error) {
	data := map[string]any{}
	if err := json.Unmarshal(line, &data); err != nil {
		return nil, err
	}
	data["event"] = event
	var body bytes.Buffer
	if err := t.Execute(&body, data); err != nil {
		return nil, err
	}
	if !json.Valid(body.Bytes()) {
		return nil, errors.New("it does not make JSON; put each value in quotes with {{json .NAME}}")
	}
	return body.Bytes(), nil
}

// standard returns the body in the form of Standard Webhooks.
func standard(event string, line []byte) ([]byte, error) {
	var l struct {
		Time string `json:"time"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Type      string          `json:"type"`
		Timestamp string          `json:"timestamp"`
		Data      json.RawMessage `json:"data"`
	}{event, l.Time, line})
}

// pass implements receiver. All tries have one id, by which the receiver knows a repeated event.
func (w *webhook) pass(ctx context.Context, event string, line []byte) error {
	body, err := standard(event, line)
	if w.body != nil {
		body, err = fill(w.body, event, line)
	}
	if err != nil {
		return err
	}
	id := "msg_" + rand.Text()
	for n, pause := 1, w.pause; ; n, pause = n+1, 2*pause {
		again, err := w.post(ctx, id, body)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("given up at the worker's end, try %d: %w", n, err)
		case !again:
			return err
		case n == tries:
			return fmt.Errorf("given up after %d tries: %w", tries, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("given up at the worker's end, after try %d: %w", n, err)
		case <-time.After(pause):
		}
	}
}

// post sends a request, and reports after an error whether another try may succeed.
func (w *webhook) post(ctx context.Context, id string, body []byte) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url.String(), bytes.NewReader(body))
	if err != nil {
		return false, withoutURL(err)
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "spotworker")
	request.Header.Set("webhook-id", id)
	request.Header.Set("webhook-timestamp", now)
	if w.key != nil {
		request.Header.Set("webhook-signature", "v1,"+sign(w.key, id, now, body))
	}
	response, err := w.client.Do(request)
	if err != nil {
		return true, withoutURL(err)
	}
	_ = response.Body.Close() // it may repeat the address
	switch code := response.StatusCode; {
	case code >= 200 && code < 300:
		return false, nil
	case code >= 300 && code < 400:
		return false, fmt.Errorf("status %d: redirects are not followed", code)
	default:
		again = code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500
		return again, fmt.Errorf("status %d %s", code, http.StatusText(code))
	}
}

// sign returns the signature of a request, in base64.
func sign(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// withoutURL returns an error of net/http without the address, which may be a secret.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
