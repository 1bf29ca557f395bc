package guard

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fatalRecorder is a testing.TB that notes Fatalf and stops the goroutine, as the real
// one does. The embedded interface supplies methods that are never called.
type fatalRecorder struct {
	testing.TB
	message string
}

func (r *fatalRecorder) Helper() {}

func (r *fatalRecorder) Fatalf(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	panic(r)
}

// loopback calls Loopback and returns its result and the failure it reported.
func loopback(endpoint string) (got, failure string) {
	r := &fatalRecorder{}
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
		failure = r.message
	}()
	return Loopback(r, endpoint), ""
}

func TestLoopback(t *testing.T) {
	tests := []struct {
		endpoint string
		allowed  bool
	}{
		{"none", true},
		{"http://127.0.0.1", true},
		{"http://127.0.0.1:8080/vms/a", true},
		{"http://127.5.6.7:1", true},
		{"https://127.0.0.1:8443", true},
		{"http://[::1]:8080", true},
		{"http://[::ffff:127.0.0.1]:8080", true},

		{"", false},
		{"None", false},
		{"127.0.0.1:8080", false},
		{"ftp://127.0.0.1", false},
		{"http://", false},
		{"http://%", false},
		{"http://localhost:8080", false},
		{"http://127.0.0.1.example.com", false},
		{"http://127.0.0.1@192.0.2.1", false},
		{"http://169.254.169.254", false},
		{"http://[::ffff:169.254.169.254]", false},
		{"http://[fe80::1]", false},
		{"http://0.0.0.0:8080", false},
		{"http://192.0.2.1", false},
	}
	for _, tt := range tests {
		got, failure := loopback(tt.endpoint)
		if allowed := failure == ""; allowed != tt.allowed {
			t.Errorf("Loopback(%q) failure = %q, want allowed = %t", tt.endpoint, failure, tt.allowed)
		}
		if tt.allowed && got != tt.endpoint {
			t.Errorf("Loopback(%q) = %q, want it unchanged", tt.endpoint, got)
		}
	}
}

func TestTransportReachesLoopback(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	defer srv.Close()
	transport := Transport()
	defer transport.CloseIdleConnections()

	resp, err := (&http.Client{Transport: transport}).Get(srv.URL)
	if err != nil {
		t.Fatalf("Get(loopback server) = %v, want an answer", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTeapot {
		t.Errorf("status = %d, want %d", resp.StatusCode, http.StatusTeapot)
	}
}

// The refused addresses are documentation ranges and names that do not exist,
// so that a broken guard reaches no service.
func TestTransportRefusesEverythingElse(t *testing.T) {
	transport := Transport()
	defer transport.CloseIdleConnections()
	for _, url := range []string{
		"http://192.0.2.1/",
		"http://[2001:db8::1]/",
		"http://metadata.invalid/",
		"http://localhost:1/",
	} {
		resp, err := (&http.Client{Transport: transport}).Get(url)
		if err == nil {
			resp.Body.Close()
		}
		if !errors.Is(err, ErrNotLoopback) {
			t.Errorf("Get(%s) = %v, want ErrNotLoopback", url, err)
		}
	}
}

func TestTransportUsesNoProxy(t *testing.T) {
	if Transport().Proxy != nil {
		t.Error("Transport().Proxy is set, want none: a proxy could leave this machine")
	}
}

func TestDialContextWantsAPort(t *testing.T) {
	conn, err := DialContext(t.Context(), "tcp", "127.0.0.1")
	if err == nil {
		conn.Close()
		t.Fatal("DialContext without a port succeeded, want an error")
	}
	if _, ok := errors.AsType[*net.AddrError](err); !ok {
		t.Errorf("DialContext without a port = %v, want a *net.AddrError", err)
	}
}
