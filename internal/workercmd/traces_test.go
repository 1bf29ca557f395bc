package workercmd

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	pb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/telemetry/tracing/otlp"
	"github.com/spotworker/spotworker/job"
)

// receiver is a collector that keeps the spans that it gets.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans []received
}

// received is a span, with the service that sent it.
type received struct {
	*pb.Span
	service string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var data pb.TracesData
		if err == nil {
			err = proto.Unmarshal(body, &data)
		}
		if err != nil || request.URL.Path != "/v1/traces" {
			t.Errorf("the collector got %s: %v", request.URL.Path, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, resource := range data.ResourceSpans {
			service := ""
			for _, a := range resource.Resource.Attributes {
				if a.Key == "service.name" {
					service = a.Value.GetStringValue()
				}
			}
			for _, scope := range resource.ScopeSpans {
				for _, span := range scope.Spans {
					r.spans = append(r.spans, received{span, service})
				}
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// tree returns the spans as lines, children indented below their parent and in the order
// in which they began.
func (r *receiver) tree(t *testing.T) (lines []string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.spans, func(a, b received) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	known := map[string]bool{"": true}
	for _, s := range r.spans {
		known[string(s.SpanId)] = true
		if string(s.TraceId) != string(r.spans[0].TraceId) {
			t.Errorf("span %s is of another trace", s.Name)
		}
	}
	var below func(parent, indent string)
	below = func(parent, indent string) {
		for _, s := range r.spans {
			if string(s.ParentSpanId) == parent {
				lines = append(lines, indent+s.service+": "+s.Name)
				below(string(s.SpanId), indent+"  ")
			}
		}
	}
	below("", "")
	for _, s := range r.spans {
		if !known[string(s.ParentSpanId)] {
			t.Errorf("the parent of span %s is not there", s.Name)
		}
	}
	return lines
}

// TestTraceOfAJob follows a job from its put through an eviction to the worker that commits
// it: one trace. Its handler has the trace in its context and as a traceparent.
func TestTraceOfAJob(t *testing.T) {
	collector := newReceiver(t)
	c := newCloud(t, true)
	c.metadata.AddVM(imds.VM{Name: "vm_1", VMID: "22223333-0000-0000-0000-000000000000", Priority: "Spot"})
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", c.connection)
	seen := make(chan string, 2)
	kinds := job.Kinds{"relay": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		if !strings.Contains(j.Trace, trace.SpanContextFromContext(ctx).SpanID().String()) {
			t.Errorf("the context's span is %s, the job's trace %q", trace.SpanContextFromContext(ctx).SpanID(), j.Trace)
		}
		seen <- j.Trace
		if _, _, resumed := j.Saved(); resumed {
			return []byte("done"), nil
		}
		j.Report(job.Progress{State: []byte("half")})
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})}
	start := func(vm string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		o := Options{Kinds: kinds, Logger: slog.New(slog.DiscardHandler), Arguments: []string{
			"--metadata-endpoint=" + strings.TrimSuffix(c.endpoint, testVM) + vm, "--listen=none", "--concurrency=1",
		}}
		go func() { ended <- Run(ctx, o) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	sender, err := otlp.Start(otlp.Config{Service: "producer", Env: func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL}[name]
	}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	puts, err := client.Open(client.Options{ConnectionString: c.connection, TracerProvider: sender.Provider()})
	if err != nil {
		t.Fatal(err)
	}
	stopFirst := start(testVM)
	if _, err := puts.Put(t.Context(), client.Spec{ID: "relay", Kind: "relay"}); err != nil {
		t.Fatal(err)
	}
	sender.Close(patience)
	first := <-seen
	if _, err := c.metadata.SimulateEviction(testVM); err != nil {
		t.Fatal(err)
	}
	c.untilRecord(t, "relay", "open", func(r checkpoint.Record) bool { return r.Status == checkpoint.Open })
	stopSecond := start("vm_1")
	c.untilRecord(t, "relay", "done", func(r checkpoint.Record) bool { return r.Status == checkpoint.Done })
	second := <-seen
	stopSecond()
	stopFirst()
	if first[:35] != second[:35] || first == second {
		t.Errorf("traces of the two runs are %s and %s, want one trace and two spans", first, second)
	}
	want := `producer: put spotworker-jobs
  spotworker: process spotworker-jobs
    spotworker: recover
    spotworker: handler
    spotworker: release
    spotworker: checkpoint
  spotworker: process spotworker-jobs
    spotworker: recover
    spotworker: handler
    spotworker: commit`
	if got := strings.Join(collector.tree(t), "\n"); got != want {
		t.Errorf("trace:\n%s\nwant:\n%s", got, want)
	}
}

// TestDeadCollector: a collector that does not answer costs one line, and neither jobs nor
// the end of the worker wait for it.
func TestDeadCollector(t *testing.T) {
	listening := httptest.NewServer(http.NotFoundHandler())
	listening.Close() // no process listens there now
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", listening.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	c := newCloud(t, true)
	var logged output
	stop := c.embed(t, Options{Kinds: testKinds, Logger: slog.New(slog.NewTextHandler(&logged, nil))}, "--concurrency=1")
	for _, id := range []string{"a", "b", "c"} {
		c.put(t, id, "short")
		c.untilRecord(t, id, "done", func(r checkpoint.Record) bool { return r.Status == checkpoint.Done })
		time.Sleep(50 * time.Millisecond) // a batch for each
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(logged.String(), "traces are not sent"); n != 1 {
		t.Errorf("%d lines about the collector, want 1:\n%s", n, &logged)
	}
}
