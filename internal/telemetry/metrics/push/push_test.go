package push

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// endpoint takes pushes as a server of remote write does.
type endpoint struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	pushes []map[string][]float64 // values by series
	times  []int64                // of all values
	tokens []string
}

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{status: http.StatusNoContent}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		request, err := s2.Decode(nil, body)
		if err != nil || r.Header.Get("Content-Encoding") != "snappy" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("request %v, %v", err, r.Header)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.tokens = append(e.tokens, r.Header.Get("Authorization"))
		if e.status == http.StatusNoContent {
			e.pushes = append(e.pushes, decode(t, request))
			e.times = append(e.times, timesOf(t, request)...)
		}
		http.Error(w, "no", e.status)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) last() (pushes int, values map[string][]float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.pushes) == 0 {
		return 0, nil
	}
	return len(e.pushes), e.pushes[len(e.pushes)-1]
}

// fields calls f with each field of a message.
func fields(t *testing.T, message []byte, f func(number protowire.Number, content []byte, fixed uint64)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			t.Fatal("not protobuf")
		}
		message = message[n:]
		switch kind {
		case protowire.BytesType:
			content, n := protowire.ConsumeBytes(message)
			f(number, content, 0)
			message = message[n:]
		case protowire.Fixed64Type:
			fixed, n := protowire.ConsumeFixed64(message)
			f(number, nil, fixed)
			message = message[n:]
		default:
			_, n := protowire.ConsumeVarint(message)
			message = message[n:]
		}
	}
}

func decode(t *testing.T, request []byte) map[string][]float64 {
	all := map[string][]float64{}
	fields(t, request, func(_ protowire.Number, series []byte, _ uint64) {
		var names, labels []string
		var values []float64
		fields(t, series, func(number protowire.Number, content []byte, _ uint64) {
			var pair []string
			fields(t, content, func(_ protowire.Number, text []byte, fixed uint64) {
				if number == 2 {
					values = append(values, math.Float64frombits(fixed))
					return
				}
				pair = append(pair, string(text))
			})
			if number == 1 {
				names = append(names, pair[0])
				labels = append(labels, strings.Join(pair, "="))
			}
		})
		if !slices.IsSorted(names) {
			t.Errorf("labels are not in order: %v", names)
		}
		all[strings.Join(labels, ",")] = values
	})
	return all
}

// timesOf returns the times of all values, as the message has them.
func timesOf(t *testing.T, request []byte) (all []int64) {
	fields(t, request, func(_ protowire.Number, series []byte, _ uint64) {
		fields(t, series, func(number protowire.Number, content []byte, _ uint64) {
			if number != 2 {
				return
			}
			_, _, n := protowire.ConsumeTag(content)
			content = content[n+8:] // behind the value, which has 8 bytes
			_, _, n = protowire.ConsumeTag(content)
			at, _ := protowire.ConsumeVarint(content[n:])
			all = append(all, int64(at))
		})
	})
	return all
}

// TestPush: all kinds of metrics arrive, the series end with the process, and only a
// failure that begins is logged.
func TestPush(t *testing.T) {
	e := newEndpoint(t)
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "jobs_total"}, []string{"kind"})
	counter.WithLabelValues("digest").Add(3)
	times := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds", Buckets: []float64{1, 10}})
	times.Observe(5)
	registry.MustRegister(counter, times)
	var lines strings.Builder
	p, err := New(Config{
		URL: e.URL, Gatherer: registry, Instance: "vm-0", Log: slog.New(slog.NewTextHandler(&lines, nil)),
		Token: func(context.Context) (string, error) { return "secret", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(ctx) }()
	p.Soon()
	until(t, "the first push", func() bool { n, _ := e.last(); return n == 1 })
	_, got := e.last()
	const all = "instance=vm-0,job=spotworker"
	for series, want := range map[string]float64{
		"__name__=jobs_total," + all + ",kind=digest": 3,
		"__name__=seconds_bucket," + all + ",le=1":    0,
		"__name__=seconds_bucket," + all + ",le=10":   1,
		"__name__=seconds_bucket," + all + ",le=+Inf": 1,
		"__name__=seconds_sum," + all:                 5, "__name__=seconds_count," + all: 1,
	} {
		if values := got[series]; len(values) != 1 || values[0] != want {
			t.Errorf("%s = %v, want %v", series, values, want)
		}
	}
	e.mu.Lock()
	if e.tokens[0] != "Bearer secret" {
		t.Errorf("token = %q", e.tokens[0])
	}
	e.status = http.StatusForbidden
	e.mu.Unlock()
	for range 3 {
		before := e.count()
		p.Soon()
		until(t, "a push that is refused", func() bool { return e.count() > before })
	}
	e.mu.Lock()
	e.status = http.StatusNoContent
	e.mu.Unlock()
	cancel()
	<-ended
	n, got := e.last()
	if values := got["__name__=seconds_sum,"+all]; n != 2 || len(values) != 2 || math.Float64bits(values[1]) != stale {
		t.Errorf("pushes = %d, last values = %v, want 2, and an end of the series", n, values)
	}
	for _, at := range e.times {
		if age := time.Since(time.UnixMilli(at)); age < -time.Second || age > time.Hour {
			t.Fatalf("a value is of %s, want now", time.UnixMilli(at))
		}
	}
	if warned := strings.Count(lines.String(), "metrics not pushed"); warned != 1 || strings.Contains(lines.String(), "secret") {
		t.Errorf("log:\n%s\nwant one warning", &lines)
	}
}

func (e *endpoint) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.tokens)
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 12_000 { // 2 minutes: a busy machine is slow, not stuck
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("waited in vain for " + what)
}

// TestNewRefuses texts that are no address.
func TestNewRefuses(t *testing.T) {
	for _, url := range []string{"metrics", "ftp://host/x", "https://", "http://[::1"} {
		if _, err := New(Config{URL: url}); err == nil {
			t.Errorf("New with %q = nil, want an error", url)
		}
	}
}

// TestNoToken: a push without a token is not sent.
func TestNoToken(t *testing.T) {
	e := newEndpoint(t)
	p, err := New(Config{URL: e.URL, Gatherer: prometheus.NewRegistry(), Token: func(context.Context) (string, error) {
		return "",
			errors.New("no identity")
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.send(t.Context(), false); err == nil || e.count() != 0 {
		t.Errorf("send = %v, %d requests, want an error and none", err, e.count())
	}
}
