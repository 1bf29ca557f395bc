package imds

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/guard"
)

// overHTTP serves s on a loopback port and returns a function that asks for
// url below it.
func overHTTP(t *testing.T, s *Server) func(ctx context.Context, path string) (int, string, error) {
	t.Helper()
	srv := httptest.NewServer(s.Handler())
	transport := guard.Transport()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.Close()
	})
	base := guard.Loopback(t, srv.URL)
	return func(ctx context.Context, path string) (int, string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
		if err != nil {
			return 0, "", err
		}
		req.Header.Set("Metadata", "true")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), err
	}
}

func TestHandlerServesEveryVMOnOnePort(t *testing.T) {
	s := unlimited()
	s.AddVM(VM{Name: "a"})
	s.AddVM(VM{Name: "b"})
	id := s.Schedule(Event{Type: "Preempt", Resources: []string{"b"}})
	get := overHTTP(t, s)

	for _, tt := range []struct {
		path   string
		status int
		shows  bool
	}{
		{"/vms/a" + eventsPath, 200, false},
		{"/vms/b" + eventsPath, 200, true},
		{"/vms/B" + eventsPath, 200, true},
		{"/vms/c" + eventsPath, 404, false},
		{"/vms/a/elsewhere?api-version=2020-07-01", 404, false},
		{"/vms/a", 404, false},
		{"/vms/" + eventsPath, 404, false},
		{eventsPath, 404, false},
	} {
		status, body, err := get(t.Context(), tt.path)
		if err != nil || status != tt.status {
			t.Errorf("GET %s = %d, %v, want %d", tt.path, status, err, tt.status)
		}
		if shows := strings.Contains(body, id); shows != tt.shows {
			t.Errorf("GET %s shows the event: %t, want %t", tt.path, shows, tt.shows)
		}
	}
}
