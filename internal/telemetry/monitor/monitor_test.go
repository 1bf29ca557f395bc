package monitor

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/telemetry/health"
	"github.com/spotworker/spotworker/internal/test/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a server whose health a test decides.
type bench struct {
	*Server
	report atomic.Pointer[health.Report]
	log    bytes.Buffer // to be read between requests
	client *http.Client
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{client: &http.Client{Transport: guard.Transport(), Timeout: 2 * time.Minute}} // a busy machine is slow, not stuck
	b.report.Store(&health.Report{})
	server, err := Listen(Config{
		Address: "127.0.0.1:0",
		Health:  func() health.Report { return *b.report.Load() },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }),
		Log:     slog.New(slog.NewTextHandler(&b.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Server = server
	t.Cleanup(func() {
		b.client.CloseIdleConnections()
		b.Close()
	})
	return b
}

// get returns status and body of a request.
func (b *bench) ask(t *testing.T, method, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+b.Address()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// verdictOfExtension reads an answer as the Application Health extension does.
func verdictOfExtension(t *testing.T, status int, body string) string {
	t.Helper()
	var answer struct {
		ApplicationHealthState string `json:"applicationHealthState"`
		CustomMetrics          string `json:"customMetrics"`
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status < 200 || status > 299 || answer.CustomMetrics != "" {
		return "Unknown"
	}
	switch answer.ApplicationHealthState {
	case "Healthy", "Unhealthy":
		return answer.ApplicationHealthState
	default:
		return "Unknown"
	}
}

func TestHealthz(t *testing.T) {
	b := newBench(t)
	status, body := b.ask(t, http.MethodGet, "/healthz")
	if want := `{"ApplicationHealthState":"Healthy"}` + "\n"; body != want {
		t.Errorf("healthy worker answers %q, want %q", body, want)
	}
	if got := verdictOfExtension(t, status, body); got != "Healthy" {
		t.Errorf("the extension makes %s of it, want Healthy", got)
	}
	b.report.Store(&health.Report{Stuck: []health.Stuck{{Loop: "claim", Overdue: 35 * time.Second}}})
	status, body = b.ask(t, http.MethodGet, "/healthz")
	want := `{"ApplicationHealthState":"Unhealthy","reason":"stuck: claim (should have turned 35s ago)",` +
		`"stuck":[{"loop":"claim","overdue_seconds":35}]}` + "\n"
	if body != want {
		t.Errorf("unhealthy worker answers %q, want %q", body, want)
	}
	if got := verdictOfExtension(t, status, body); got != "Unhealthy" {
		t.Errorf("the extension makes %s of it, want Unhealthy", got)
	}
	if status, body = b.ask(t, http.MethodGet, "/livez"); status != http.StatusServiceUnavailable || body != want {
		t.Errorf("an unhealthy worker's /livez = %d %q, want 503 %q", status, body, want)
	}
}

func TestHealthIsLoggedWhenItChanges(t *testing.T) {
	b := newBench(t)
	for _, stuck := range [][]health.Stuck{nil, nil, {{Loop: "claim"}}, {{Loop: "claim"}}, nil, nil} {
		b.report.Store(&health.Report{Stuck: stuck})
		b.ask(t, http.MethodGet, "/healthz")
	}
	b.Close() // after it nothing more is logged
	log := b.log.String()
	if n := strings.Count(log, "\n"); n != 2 || !strings.Contains(log, "worker is not healthy") || !strings.Contains(log, "claim") ||
		!strings.Contains(log, "healthy again") {
		t.Errorf("log = %q, want one line for each change", log)
	}
}

func TestOtherRequests(t *testing.T) {
	b := newBench(t)
	for _, row := range []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, "/metrics", 200},
		{http.MethodHead, "/healthz", 200},
		{http.MethodGet, "/livez", 200},
		{http.MethodPost, "/livez", 405},
		{http.MethodPost, "/healthz", 405},
		{http.MethodGet, "/", 404},
		{http.MethodGet, "/debug/pprof/", 404},
	} {
		if status, _ := b.ask(t, row.method, row.path); status != row.status {
			t.Errorf("%s %s = %d, want %d", row.method, row.path, status, row.status)
		}
	}
}

func TestTakenPort(t *testing.T) {
	b := newBench(t)
	_, err := Listen(Config{Address: b.Address(), Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), b.Address()) {
		t.Errorf("Listen on a taken port = %v, want an error that names it", err)
	}
}

// TestSilentCaller: a connection that sends nothing is closed after a while, and
// does not keep the server from closing.
func TestSilentCaller(t *testing.T) {
	b := newBench(t)
	if b.http.ReadHeaderTimeout <= 0 || b.http.ReadTimeout <= 0 || b.http.WriteTimeout <= 0 || b.http.IdleTimeout <= 0 {
		t.Errorf("server has no time-outs: %+v", b.http)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{listener: listener, http: &http.Server{Handler: b.http.Handler}} // without time-outs: only Close ends the connection
	s.serving.Go(func() { _ = s.http.Serve(listener) })
	conn, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n"); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close()
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("Close waits for a silent caller")
	}
}

// flood is how many connections TestIdleConnections opens. The caller needs a
// descriptor for each as well.
var flood = flag.Int("flood", 500, "number of idle connections in TestIdleConnections")

// TestIdleConnections: thousands of connections that send nothing, or never the body that
// they announced, take at most maxConnections descriptors of the worker, and the health
// probe is answered while they are held open.
func TestIdleConnections(t *testing.T) {
	for name, sent := range map[string]string{"idle": "", "no body": "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"} {
		t.Run(name, func(t *testing.T) { holdConnections(t, sent) })
	}
}

// holdConnections opens connections, sends a text on each, and asks for the health.
func holdConnections(t *testing.T, sent string) {
	b := newBench(t)
	var held []net.Conn
	defer func() {
		for _, conn := range held {
			_ = conn.Close()
		}
	}()
	for range *flood {
		conn, err := net.Dial("tcp", b.Address())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
		_, _ = io.WriteString(conn, sent) // fails if it was closed at once
	}
	var longest time.Duration
	for range 3 {
		begun := time.Now()
		b.client.CloseIdleConnections() // a probe of the platform opens a connection each time
		if status, body := b.ask(t, http.MethodGet, "/healthz"); status != 200 || verdictOfExtension(t, status, body) != "Healthy" {
			t.Errorf("beside %d idle connections /healthz answers %d %q, want Healthy", *flood, status, body)
		}
		longest = max(longest, time.Since(begun))
	}
	t.Logf("%d connections: %d goroutines in all, /healthz answers within %s", *flood, runtime.NumGoroutine(), longest.Round(time.Millisecond))
	for i, conn := range held[:max(*flood-maxConnections, 0)] { // the oldest ones
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute)) // a busy machine is slow, not stuck
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("of %d idle connections number %d is open, want at most %d", *flood, i+1, maxConnections)
		}
	}
}

func TestAddress(t *testing.T) {
	for _, row := range []struct{ asked, instance, want, fault string }{
		{"auto", "0", "127.0.0.1:8810", ""},
		{"auto", "3", "127.0.0.1:8813", ""},
		{"auto", "99", "127.0.0.1:8909", ""},
		{"auto", "100", "127.0.0.1:0", ""},
		{"auto", "-1", "127.0.0.1:0", ""},
		{"auto", "blue", "127.0.0.1:0", ""},
		{"none", "blue", "", ""},
		{"127.0.0.1:0", "blue", "127.0.0.1:0", ""},
		{":9000", "0", ":9000", ""},
		{"[::1]:9000", "0", "[::1]:9000", ""},
		{"9000", "0", "", "HOST:PORT"},
		{"127.0.0.1", "0", "", "HOST:PORT"},
		{"127.0.0.1:http", "0", "", "port"},
		{"127.0.0.1:65536", "0", "", "port"},
		{"", "0", "", "HOST:PORT"},
	} {
		got, err := Address(row.asked, row.instance)
		if got != row.want || (err != nil) != (row.fault != "") || err != nil && !strings.Contains(err.Error(), row.fault) {
			t.Errorf("Address(%q, %q) = %q, %v, want %q, an error with %q", row.asked, row.instance, got, err, row.want, row.fault)
		}
	}
}
