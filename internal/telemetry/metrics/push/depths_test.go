package push

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestDepths: a reading arrives as Azure Monitor documents custom metrics, a fault that may pass is
// tried again, a refusal is not, and only the first failure is logged.
func TestDepths(t *testing.T) {
	type post struct {
		Time time.Time `json:"time"`
		Data struct {
			Base struct {
				Metric, Namespace string
				Names             []string `json:"dimNames"`
				Series            []struct {
					Values               []string `json:"dimValues"`
					Min, Max, Sum, Count float64
				}
			} `json:"baseData"`
		}
	}
	posts := make(chan post, 10)
	var status, refused atomic.Int64
	status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := int(status.Load()); s != http.StatusOK {
			refused.Add(1)
			status.CompareAndSwap(http.StatusServiceUnavailable, http.StatusOK)
			http.Error(w, "no", s)
			return
		}
		var p post
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil || r.Header.Get("Content-Type") != "application/json" ||
			r.Header.Get("Authorization") != "Bearer secret" || r.Method != http.MethodPost || r.URL.Path != "/subscriptions/s/metrics" {
			t.Errorf("%s %s, %v: %v", r.Method, r.URL, r.Header, err)
		}
		posts <- p
	}))
	defer server.Close()
	var lines strings.Builder
	token := func(context.Context) (string, error) { return "secret", nil }
	d, err := NewDepths(server.URL+"/subscriptions/s/metrics", token, slog.New(slog.NewTextHandler(&lines, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); d.Run(ctx) }()
	check := func() {
		t.Helper()
		for _, want := range []struct {
			metric string
			value  float64
		}{{"QueueMessages", 7}, {"QueueOldestSeconds", 90}} {
			got := <-posts
			b := got.Data.Base
			if b.Metric != want.metric || b.Namespace != "spotworker" || len(b.Names) != 1 || b.Names[0] != "Queue" || len(b.Series) != 1 ||
				b.Series[0].Values[0] != "jobs" || b.Series[0].Min != want.value || b.Series[0].Max != want.value ||
				b.Series[0].Sum != want.value || b.Series[0].Count != 1 || time.Since(got.Time).Abs() > time.Hour {
				t.Errorf("posted %+v, want %s = %v of queue jobs", got, want.metric, want.value)
			}
		}
	}
	d.Read("jobs", 7, 90*time.Second)
	check()
	status.Store(http.StatusServiceUnavailable) // once
	d.Read("jobs", 7, 90*time.Second)
	check()
	status.Store(http.StatusForbidden)
	refused.Store(0)
	for range 2 {
		d.Read("jobs", 7, 90*time.Second)
	}
	until(t, "two metrics of two readings", func() bool { return refused.Load() == 4 })
	status.Store(http.StatusOK)
	for range 2 { // the first one is logged by the time that the second one arrives
		d.Read("jobs", 7, 90*time.Second)
		check()
	}
	cancel()
	<-ended
	log := lines.String()
	if strings.Count(log, "not published") != 1 || !strings.Contains(log, "403 Forbidden") || strings.Contains(log, "secret") ||
		strings.Count(log, "published again") != 1 {
		t.Errorf("log:\n%s\nwant one warning with the refusal, and one line when it is over", log)
	}
}

// TestDepthsDoNotWait: an endpoint that hangs delays neither the worker's readings nor its end.
func TestDepthsDoNotWait(t *testing.T) {
	asked, over := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(asked); <-over }))
	defer server.Close()
	defer close(over)
	d, err := NewDepths(server.URL, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); d.Run(ctx) }()
	for range 10 * mostReadings {
		d.Read("jobs", 1, 0)
	}
	<-asked
	cancel()
	<-ended
}
