package metrics

import (
	"bytes"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestWrongValues: no value that a metric is given ends the worker or spoils a sum. The
// first of each metric is logged.
func TestWrongValues(t *testing.T) {
	const bad = "\xff\xfe"
	var log bytes.Buffer
	m := New(Config{
		Words: testWords, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Healthy:  func() bool { panic("healthy") },
		Space:    func() (int64, int64) { panic("space") },
		OOMKills: func() (int64, bool) { panic("kills") },
	})
	m.Watch(func() (report, checkpoint time.Duration, silent, lacking int) { panic("silence") })
	for range 3 {
		for _, took := range []time.Duration{-140, -time.Hour, math.MinInt64, time.Second, math.MaxInt64} {
			m.Spent("k", "redone", took)
			m.Spent(bad, bad, took)
			m.Waited("put", took)
			m.Committed("k", took, took, -1, -1)
			m.Committed(bad, took, took, -1, -1)
			m.Saved("saved", int64(took), took)
			m.Saved(bad, 1, took)
			m.Drained(bad, took)
			m.Called(bad, bad, bad, took, true, bad)
			m.QueueRead(bad, -1, took)
			m.OutputSent(int64(took))
			m.CountInputs(bad, int64(took), int64(took))
		}
		m.Failed(bad, bad)
		m.Broke(bad)
		m.Recovered(bad)
		m.Refused(bad)
		m.Moved(bad)
		m.Circles(bad)
		m.Ended(bad)
		m.Started(bad)
		m.Entered(bad, false)
		m.Announced(bad, bad)
		m.Acknowledged(bad)
		m.Polled(time.Now(), bad)
		m.Blind(time.Now().Add(time.Hour))
		m.Blind(time.Time{})
	}
	m.handlers.add(math.NaN(), "k", "redone")
	m.handlers.add(math.Inf(1), "k", "redone")
	m.handlers.add(1, "k") // a label too few
	m.saveTime.observe(math.NaN())
	m.state.set(1, "a", "b")

	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			sums := []float64{series.GetCounter().GetValue(), series.GetHistogram().GetSampleSum()}
			for _, sum := range sums {
				if sum < 0 || math.IsNaN(sum) || math.IsInf(sum, 0) {
					t.Errorf("%s %v = %v", f.GetName(), series.GetLabel(), sum)
				}
			}
		}
	}
	for _, name := range []string{"handler_seconds_total", "checkpoint_save_duration_seconds", "state", "healthy", "jobs_silent"} {
		if n := strings.Count(log.String(), "metric="+name+" "); n != 1 {
			t.Errorf("lines about %s = %d, want 1:\n%s", name, n, log.String())
		}
	}
}

// TestDifferenceOfReadings: a difference that two readings of a clock made negative counts as 0,
// without a line in the log.
func TestDifferenceOfReadings(t *testing.T) {
	var log bytes.Buffer
	m := New(Config{Words: testWords, Log: slog.New(slog.NewTextHandler(&log, nil))})
	m.Spent("k", "redone", -140)
	m.Spent("k", "redone", time.Second)
	expect(t, m, `
# HELP spotworker_handler_seconds_total Time of handlers, by its outcome. Goodput is committed and handed_over.
# TYPE spotworker_handler_seconds_total counter
spotworker_handler_seconds_total{kind="k",outcome="redone"} 1
`, "handler_seconds_total")
	if log.Len() > 0 {
		t.Errorf("log = %s, want nothing", log.String())
	}
}

// TestScrapeWithAnInvalidMetric: the fault of one metric leaves the others readable.
func TestScrapeWithAnInvalidMetric(t *testing.T) {
	m := New(Config{Words: testWords})
	desc := prometheus.NewDesc("spotworker_wrong", "Wrong.", []string{"label"}, nil)
	m.worker.MustRegister(collectorOf{desc, func() prometheus.Metric { return constant(desc, prometheus.GaugeValue, 1) }})
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "spotworker_job_slots 0") {
		t.Errorf("scrape = %d with %d bytes, want the other metrics", answer.Code, answer.Body.Len())
	}
}

type collectorOf struct {
	desc *prometheus.Desc
	get  func() prometheus.Metric
}

func (c collectorOf) Describe(out chan<- *prometheus.Desc) { out <- c.desc }
func (c collectorOf) Collect(out chan<- prometheus.Metric) { out <- c.get() }

// TestGuardIsUsed: no other file of the package calls what panics.
func TestGuardIsUsed(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		if name == "guard.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range []string{"WithLabelValues(", "MustNewConst", "NewCounter(", "NewCounterVec(", "NewGauge(", "NewGaugeVec(",
			"NewHistogram(", "NewHistogramVec("} {
			if strings.Contains(string(text), call) {
				t.Errorf("%s calls %s…): metrics are made by the guard", name, call)
			}
		}
	}
}
