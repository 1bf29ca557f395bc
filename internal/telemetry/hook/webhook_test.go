package hook

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/labtest"
)

// testSecret is the secret of the example in the specification of Standard Webhooks.
const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// endpoint is a server that gets events.
type endpoint struct {
	*httptest.Server

	mu     sync.Mutex
	got    []*http.Request
	bodies []string
}

// listenTo starts a server that answers request n, counted from 1, with answer.
func listenTo(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		e.mu.Lock()
		e.got, e.bodies = append(e.got, r), append(e.bodies, string(body))
		n := len(e.got)
		e.mu.Unlock()
		answer(n, w, r)
	}))
	t.Cleanup(e.Close)
	return e
}

// all returns the requests so far and their bodies.
func (e *endpoint) all() ([]*http.Request, []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got, e.bodies
}

func status(codes ...int) func(int, http.ResponseWriter, *http.Request) {
	return func(n int, w http.ResponseWriter, r *http.Request) {
		if code := codes[min(n, len(codes))-1]; code != 0 {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "cannot post "+r.URL.Path)
			return
		}
		panic(http.ErrAbortHandler) // no answer
	}
}

// posts returns a log, a Hook that posts to the endpoint with short pauses, and the log's text.
func posts(t *testing.T, c WebhookConfig, closeLimit time.Duration) (*slog.Logger, *Hook, *labtest.Output) {
	t.Helper()
	w, err := newWebhook(c)
	if err != nil {
		t.Fatal(err)
	}
	w.pause = time.Millisecond
	var out labtest.Output
	handler := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})
	h := start(w, slog.New(handler), closeLimit)
	return slog.New(h.Handler(handler)), h, &out
}

// TestSign has the example of the specification.
func TestSign(t *testing.T) {
	key, err := parseSecret(testSecret + "\n")
	if err != nil {
		t.Fatal(err)
	}
	got := sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature = %s, want %s", got, want)
	}
	for _, text := range []string{testSecret[6:], "whsec_", "whsec_c2hvcnQ=", "whsec_!", "whsec_" + strings.Repeat("AAAA", 22)} {
		if _, err := parseSecret(text); err == nil || strings.Contains(err.Error(), "MfKQ") {
			t.Errorf("secret %q: %v, want an error without the secret", text, err)
		}
	}
}

// TestPost: an event is posted once, as JSON, with its name and a signature over what arrived.
func TestPost(t *testing.T) {
	for message, event := range events {
		e := listenTo(t, status(http.StatusNoContent))
		log, h, out := posts(t, WebhookConfig{URL: e.URL + "/hooks/x?y=z", Secret: testSecret}, patience)
		log.Info(message, "jobs", 3) //nolint:sloglint // each message of an event
		h.Close()
		got, bodies := e.all()
		if len(got) != 1 {
			t.Fatalf("%s: requests = %d, want 1; log:\n%s", message, len(got), out)
		}
		r := got[0]
		var body struct {
			Type      string
			Timestamp time.Time
			Data      map[string]any
		}
		if err := json.Unmarshal([]byte(bodies[0]), &body); err != nil || body.Type != event || body.Data["jobs"] != 3.0 ||
			body.Data["msg"] != message || time.Since(body.Timestamp) > patience {
			t.Errorf("%s: body = %s, %v, want type %s, a time, and the line", message, bodies[0], err, event)
		}
		if r.Method != http.MethodPost || r.RequestURI != "/hooks/x?y=z" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("request = %s %s %v, want a POST of JSON", r.Method, r.RequestURI, r.Header)
		}
		key, err := parseSecret(testSecret)
		if err != nil {
			t.Fatal(err)
		}
		id, at := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
		if want := "v1," + sign(key, id, at, []byte(bodies[0])); r.Header.Get("webhook-signature") != want || id == "" || at == "" {
			t.Errorf("%s: headers = %v, want signature %s", message, r.Header, want)
		}
	}
	e := listenTo(t, status(http.StatusOK))
	log, h, _ := posts(t, WebhookConfig{URL: e.URL}, patience)
	log.Info("drained")
	h.Close()
	if got, _ := e.all(); len(got) != 1 || got[0].Header["Webhook-Signature"] != nil || got[0].Header.Get("webhook-id") == "" {
		t.Errorf("without a secret: requests = %d, want one with an id and without a signature", len(got))
	}
}

// TestRetries: a request is repeated if that may help, with the id of the first, and a few times
// at most. The log has no part of the address, which may be a secret.
func TestRetries(t *testing.T) {
	for name, row := range map[string]struct {
		codes    []int // 0: no answer
		requests int
		failed   string
	}{
		"fails once":             {[]int{500, 200}, 2, ""},
		"throttled, no answer":   {[]int{429, 0, 408, 202}, 4, ""},
		"fails for ever":         {[]int{503}, tries, "given up after 4 tries: status 503 Service Unavailable"},
		"never answers":          {[]int{0}, tries, "given up after 4 tries: EOF"},
		"refused":                {[]int{400}, 1, "status 400 Bad Request"},
		"gone":                   {[]int{500, 410}, 2, "status 410 Gone"},
		"redirected":             {[]int{307}, 1, "redirects are not followed"},
		"redirected permanently": {[]int{301}, 1, "redirects are not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			other := listenTo(t, status(http.StatusOK))
			e := listenTo(t, func(n int, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", other.URL)
				status(row.codes...)(n, w, r)
			})
			log, h, out := posts(t, WebhookConfig{URL: e.URL + "/services/T0SECRET?key=K0SECRET", Secret: testSecret}, patience)
			log.Info("drained")
			h.Close()
			got, bodies := e.all()
			if len(got) != row.requests {
				t.Errorf("requests = %d, want %d", len(got), row.requests)
			}
			for i, r := range got {
				if r.Header.Get("webhook-id") != got[0].Header.Get("webhook-id") || bodies[i] != bodies[0] {
					t.Errorf("request %d has another id or body than the first", i+1)
				}
			}
			text := out.String()
			if failed := strings.Contains(text, "receiver of events failed"); failed != (row.failed != "") || !strings.Contains(text, row.failed) {
				t.Errorf("log:\n%s\nwant the failure %q", text, row.failed)
			}
			if strings.Contains(text, "SECRET") || strings.Contains(text, testSecret[6:]) {
				t.Errorf("log has a secret:\n%s", text)
			}
			if followed, _ := other.all(); len(followed) != 0 {
				t.Error("a redirect was followed")
			}
		})
	}
}

// TestWebhookHangs: an endpoint that accepts and never answers delays neither the log nor, by
// more than its limit, the worker's end.
func TestWebhookHangs(t *testing.T) {
	release := make(chan struct{})
	e := listenTo(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-release:
		}
	})
	defer close(release)
	log, h, out := posts(t, WebhookConfig{URL: e.URL}, 100*time.Millisecond)
	begun := time.Now()
	for range parallel + queued + 10 {
		log.Info("drained")
	}
	h.Close()
	if took := time.Since(begun); took > tryLimit/2 {
		t.Errorf("logging and the end took %s beside an endpoint that hangs", took)
	}
	for _, want := range []string{"event not passed on: the receiver of events is too slow", "the worker ended before the receiver of events",
		"given up at the worker's end"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("log:\n%s\nwant %q", out, want)
		}
	}
}

// TestPauseEnds: the end of the worker ends a pause between tries too.
func TestPauseEnds(t *testing.T) {
	e := listenTo(t, status(http.StatusServiceUnavailable))
	w, err := newWebhook(WebhookConfig{URL: e.URL})
	if err != nil {
		t.Fatal(err)
	}
	w.pause = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	var failed atomic.Pointer[string]
	var passing sync.WaitGroup
	passing.Go(func() {
		if err := w.pass(ctx, "drained", []byte(`{"time":"t"}`)); err != nil {
			text := err.Error()
			failed.Store(&text)
		}
	})
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if got, _ := e.all(); len(got) == 1 || time.Now().After(end) {
			break
		}
	}
	cancel()
	passing.Wait()
	if text := failed.Load(); text == nil || !strings.Contains(*text, "given up at the worker's end") {
		t.Errorf("pass = %v, want the reason", text)
	}
}

// TestTemplate: a template makes the body of another service; values are put in quotes.
func TestTemplate(t *testing.T) {
	const slack = `{"text": {{printf "%s on %s%s" .event .vm (or .job_id "") | json}}, "jobs": {{json .jobs}}}`
	e := listenTo(t, status(http.StatusOK))
	log, h, out := posts(t, WebhookConfig{URL: e.URL, Template: slack}, patience)
	log.Info("drained", "vm", "a\"b\\c\n<d>")
	h.Close()
	_, bodies := e.all()
	var body struct {
		Text string
		Jobs any
	}
	if len(bodies) != 1 {
		t.Fatalf("requests = %d, want 1; log:\n%s", len(bodies), out)
	}
	if err := json.Unmarshal([]byte(bodies[0]), &body); err != nil || body.Text != "drained on a\"b\\c\n<d>" || body.Jobs != nil {
		t.Errorf("body = %s, %v", bodies[0], err)
	}
}

// TestWebhookSettings: wrong settings are refused at the start, without their secrets.
func TestWebhookSettings(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*WebhookConfig)
		want   string
	}{
		"no host":              {func(c *WebhookConfig) { c.URL = "https:///T0SECRET" }, "not valid"},
		"broken":               {func(c *WebhookConfig) { c.URL = "https://a/%zzSECRET" }, "not valid"},
		"password":             {func(c *WebhookConfig) { c.URL = "https://a:SECRET@b" }, "user or a password"},
		"secret":               {func(c *WebhookConfig) { c.Secret = "SECRET" }, "whsec_"},
		"syntax":               {func(c *WebhookConfig) { c.Template = `{"text": {{.msg}` }, "template of the body"},
		"unknown function":     {func(c *WebhookConfig) { c.Template = `{{quote .msg}}` }, "quote"},
		"not JSON":             {func(c *WebhookConfig) { c.Template = "drained" }, "does not make JSON"},
		"values without json":  {func(c *WebhookConfig) { c.Template = `{"text": "{{.worker}}"}` }, "{{json .NAME}}"},
		"fails for one event":  {func(c *WebhookConfig) { c.Template = `{{if eq .event "poison"}}no{{else}}{}{{end}}` }, "event poison"},
		"field of a text":      {func(c *WebhookConfig) { c.Template = `{"text": {{json .msg.text}}}` }, "template of the body"},
		"a valid one":          {func(c *WebhookConfig) { c.Template = `{"text": {{json .msg}}}` }, ""},
		"a valid one, no json": {func(c *WebhookConfig) { c.Template = `{"text": "{{.event}}"}` }, ""},
	} {
		c := WebhookConfig{URL: "https://a", Secret: testSecret}
		row.change(&c)
		h, err := Webhook(c, slog.New(slog.DiscardHandler))
		if h != nil {
			h.Close()
		}
		switch {
		case (err == nil) != (row.want == ""):
			t.Errorf("%s: %v, want %q", name, err, row.want)
		case err != nil && (!strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "SECRET")):
			t.Errorf("%s: %v, want %q and no secret", name, err, row.want)
		}
	}
}

func TestIsURL(t *testing.T) {
	for text, want := range map[string]bool{
		"https://a/b": true, "HTTP://a": true, "/usr/bin/http": false, "notify": false, "ftp://a": false, `C:\a://b`: false, "": false,
	} {
		if IsURL(text) != want {
			t.Errorf("IsURL(%q) = %t, want %t", text, !want, want)
		}
	}
}
