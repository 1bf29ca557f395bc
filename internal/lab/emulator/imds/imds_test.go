package imds

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	eventsPath  = "/metadata/scheduledevents?api-version=2020-07-01"
	computePath = "/metadata/instance/compute?api-version=2021-02-01"
)

// result is an answer as a test reads it.
type result struct {
	status int
	header http.Header
	body   string
}

// send sends one request for a VM in process, with Metadata: true.
func send(ctx context.Context, g *Guest, method, path, body string, change ...func(*http.Request)) (result, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://metadata.test"+path, strings.NewReader(body))
	if err != nil {
		return result{}, err
	}
	req.Header.Set("Metadata", "true")
	for _, f := range change {
		f(req)
	}
	resp, err := g.RoundTripper().RoundTrip(req)
	if err != nil {
		return result{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return result{resp.StatusCode, resp.Header, string(text)}, err
}

func mustSend(t *testing.T, g *Guest, method, path, body string, change ...func(*http.Request)) result {
	t.Helper()
	r, err := send(t.Context(), g, method, path, body, change...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// document reads the VM's scheduled events.
func document(t *testing.T, g *Guest) documentJSON {
	t.Helper()
	r := mustSend(t, g, http.MethodGet, eventsPath, "")
	if r.status != http.StatusOK {
		t.Fatalf("status of scheduled events = %d (%s), want 200", r.status, r.body)
	}
	var doc documentJSON
	if err := json.Unmarshal([]byte(r.body), &doc); err != nil {
		t.Fatalf("scheduled events %s: %v", r.body, err)
	}
	return doc
}

// statuses returns the status of each event by id.
func (d documentJSON) statuses() map[string]string {
	statuses := map[string]string{}
	for _, e := range d.Events {
		statuses[e.EventID] = e.EventStatus
	}
	return statuses
}

// unlimited returns a server whose rate limits do not get in the way.
func unlimited() *Server {
	return New(Options{RequestsPerSecond: -1, TokensPerSecond: -1, TokensAtOnce: -1})
}
