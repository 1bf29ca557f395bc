package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/telemetry/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func environment(pairs ...string) func(string) string {
	all := map[string]string{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		all["OTEL_"+name] = value
	}
	return func(name string) string { return all[name] }
}

// TestStart: traces are sent if a variable asks for that, and a wrong one is named without
// the value of a secret.
func TestStart(t *testing.T) {
	const endpoint = "EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
	for _, row := range []struct {
		env  []string
		sent bool
		err  string
	}{
		{nil, false, ""},
		{[]string{endpoint}, true, ""},
		{[]string{"TRACES_EXPORTER=otlp"}, true, ""},
		{[]string{"EXPORTER_OTLP_TRACES_ENDPOINT=https://collector/x"}, true, ""},
		{[]string{endpoint, "SDK_DISABLED=TRUE"}, false, ""},
		{[]string{endpoint, "TRACES_EXPORTER=none"}, false, ""},
		{[]string{endpoint, "TRACES_EXPORTER=zipkin"}, false, `OTEL_TRACES_EXPORTER is "zipkin": give otlp or none`},
		{[]string{"EXPORTER_OTLP_ENDPOINT=collector:4317"}, false, "OTEL_EXPORTER_OTLP_ENDPOINT is no address of a collector"},
		{[]string{endpoint, "EXPORTER_OTLP_PROTOCOL=grpc"}, false, `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": only http/protobuf is supported`},
		{[]string{endpoint, "EXPORTER_OTLP_COMPRESSION=zstd"}, false, "OTEL_EXPORTER_OTLP_COMPRESSION is"},
		{[]string{endpoint, "EXPORTER_OTLP_TIMEOUT=10s"}, false, "give milliseconds"},
		{[]string{endpoint, "EXPORTER_OTLP_HEADERS=secret"}, false, "OTEL_EXPORTER_OTLP_HEADERS: header 1 is not of the form name=value"},
		{[]string{endpoint, "EXPORTER_OTLP_CERTIFICATE=/none"}, false, "OTEL_EXPORTER_OTLP_CERTIFICATE: open /none"},
		{[]string{endpoint, "TRACES_SAMPLER=sometimes"}, false, `OTEL_TRACES_SAMPLER is "sometimes": give one of always_on`},
		{[]string{endpoint, "TRACES_SAMPLER=traceidratio", "TRACES_SAMPLER_ARG=2"}, false, `OTEL_TRACES_SAMPLER_ARG is "2": give a ratio`},
	} {
		s, err := Start(Config{Service: "test", Env: environment(row.env...), Log: slog.New(slog.DiscardHandler)})
		if got := s != nil; got != row.sent || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%v: sent %t, %v, want %t, %q", row.env, got, err, row.sent, row.err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: the error has a header's value: %v", row.env, err)
		}
		s.Flush(time.Second)
		s.Close(time.Second)
	}
}

// TestRequest: path, headers and compression follow the variables.
func TestRequest(t *testing.T) {
	var path, key, service string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		path, key = r.URL.Path, r.Header.Get("Api-Key")
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(unzipped)
		if err != nil {
			t.Error(err)
		}
		service = string(body)
	}))
	defer server.Close()
	s, err := Start(Config{Service: "test", Log: slog.New(slog.DiscardHandler), Env: environment(
		"EXPORTER_OTLP_TRACES_ENDPOINT="+server.URL+"/own/path", "EXPORTER_OTLP_HEADERS=api-key=a%20b", "EXPORTER_OTLP_COMPRESSION=gzip",
	)})
	if err != nil {
		t.Fatal(err)
	}
	s.Process(t.Context(), tracing.Message{JobID: "a", Queue: "jobs"}).End(nil)
	s.Close(2 * time.Minute) // a busy machine is slow, not stuck
	if path != "/own/path" || key != "a b" || !strings.Contains(service, "process jobs") {
		t.Errorf("the collector got %s with the key %q and %q", path, key, service)
	}
}

// TestTimeout: the time limit is in milliseconds, and the variable of traces comes first.
func TestTimeout(t *testing.T) {
	const endpoint = "EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
	for _, row := range []struct {
		env  []string
		want time.Duration
	}{
		{nil, 10 * time.Second},
		{[]string{"EXPORTER_OTLP_TIMEOUT=2500"}, 2500 * time.Millisecond},
		{[]string{"EXPORTER_OTLP_TIMEOUT=2500", "EXPORTER_OTLP_TRACES_TIMEOUT=300"}, 300 * time.Millisecond},
	} {
		c, err := newClient(environment(append(row.env, endpoint)...), slog.New(slog.DiscardHandler))
		if err != nil || c.timeout != row.want {
			t.Errorf("%v: a limit of %s, %v, want %s", row.env, c.timeout, err, row.want)
		}
	}
}

// TestOutage: a collector that refuses is asked again after a pause; the log says when that
// began and when it is over.
func TestOutage(t *testing.T) {
	answer, asked := http.StatusServiceUnavailable, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(answer)
	}))
	defer server.Close()
	var log bytes.Buffer
	c, err := newClient(environment("EXPORTER_OTLP_ENDPOINT="+strings.Replace(server.URL, "//", "//user:pass@", 1)),
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Stop(t.Context()) }()
	for range 5 {
		if err := c.UploadTraces(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
	if asked != 1 {
		t.Errorf("the collector was asked %d times within its pause, want once", asked)
	}
	answer = http.StatusOK
	c.next = time.Time{} // the pause is over
	_ = c.UploadTraces(t.Context(), nil)
	_ = c.UploadTraces(t.Context(), nil)
	lines := log.String()
	if strings.Count(lines, "\n") != 2 || !strings.Contains(lines, "traces are not sent") || !strings.Contains(lines, "calls_failed=5") {
		t.Errorf("log of an outage:\n%s", lines)
	}
	if strings.Contains(lines, "pass") {
		t.Errorf("the log has the password:\n%s", lines)
	}
}

// TestIDs: ids are valid, and the first one of a trace is the chosen one.
func TestIDs(t *testing.T) {
	a, span := ids{}.NewIDs(context.Background())
	b, _ := ids{}.NewIDs(context.Background())
	if !a.IsValid() || !span.IsValid() || a == b {
		t.Errorf("ids %s and %s", a, b)
	}
	s, err := Start(Config{Service: "test", Log: slog.New(slog.DiscardHandler),
		Env: environment("TRACES_EXPORTER=otlp", "TRACES_SAMPLER=always_off")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(time.Second)
	first := s.Process(t.Context(), tracing.Message{JobID: "a"}).Parent("")
	second := s.Process(t.Context(), tracing.Message{JobID: "a"}).Parent("")
	other := s.Process(t.Context(), tracing.Message{JobID: "b"}).Parent("")
	const id = len("00-") + 2*len(trace.TraceID{})
	if first[:id] != second[:id] || first == second || first[:id] == other[:id] {
		t.Errorf("traces of two deliveries of a job: %s and %s, of another job %s", first, second, other)
	}
}
