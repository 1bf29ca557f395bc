package metrics

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// guard makes the metrics of a worker, and keeps them from ending it: Prometheus' library
// panics if a counter decreases and if labels do not fit, and a NaN would stay in a sum for
// ever. A value that is wrong is left out, and logged once for each metric.
type guard struct {
	log *slog.Logger // nil logs nothing

	mu     sync.Mutex
	logged map[string]bool // by the metric's name
}

func newGuard(log *slog.Logger) *guard { return &guard{log: log, logged: map[string]bool{}} }

// fault logs the fault of a metric's value.
func (g *guard) fault(metric, what string) {
	g.mu.Lock()
	known := g.logged[metric]
	g.logged[metric] = true
	g.mu.Unlock()
	if g.log == nil || known {
		return
	}
	g.log.Error("metric left out a wrong value; later ones are not logged", "metric", metric, "error", what)
}

// Println logs an error of a scrape. It implements the logger of promhttp.
func (g *guard) Println(v ...any) { g.fault("all", strings.TrimSpace(fmt.Sprintln(v...))) }

// measured returns f, which measures a metric when it is asked for, and 0 where f panics.
func (g *guard) measured(metric string, f func() float64) func() float64 {
	return func() (v float64) {
		defer g.recovered(metric)
		return f()
	}
}

// recovered ends a panic in a function that measures a metric. It must be deferred.
func (g *guard) recovered(metric string) {
	if p := recover(); p != nil {
		g.fault(metric, fmt.Sprintf("panic: %v", p))
	}
}

// amount returns a value that may be added to a sum, or false after logging why it may not.
// One just below 0 is the difference of two readings of a clock, and counts as 0.
func (g *guard) amount(metric string, v float64) (float64, bool) {
	const rounding = 1e-3
	switch {
	case v >= 0 && v <= maxAmount:
		return v, true
	case v < 0 && v > -rounding:
		return 0, true
	}
	g.fault(metric, fmt.Sprintf("%v is no amount", v))
	return 0, false
}

// maxAmount is more than any duration or size, and so small that no sum of amounts
// becomes infinite.
const maxAmount = 1e20

// validLabels returns the values of labels in the form that the library takes. It copies
// them only where one is not in that form.
func validLabels(values []string) []string {
	for i, v := range values {
		if valid := strings.ToValidUTF8(v, "\uFFFD"); valid != v {
			values = append([]string(nil), values...)
			for ; i < len(values); i++ {
				values[i] = strings.ToValidUTF8(values[i], "\uFFFD")
			}
			break
		}
	}
	return values
}

// counters is a counter with labels, or without. Its series are not accessible otherwise.
type counters struct {
	guard *guard
	name  string
	vec   *prometheus.CounterVec
}

func (g *guard) counters(name, help string, labels ...string) *counters {
	return &counters{g, name, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)}
}

// counter returns a counter without labels, at 0.
func (g *guard) counter(name, help string) *counters {
	c := g.counters(name, help)
	c.expect()
	return c
}

// byWord returns a counter with one label, at 0 for each of the words.
func (g *guard) byWord(words []string, name, help, label string) *counters {
	c := g.counters(name, help, label)
	for _, word := range words {
		c.expect(word)
	}
	return c
}

// expect makes a series, at 0.
func (c *counters) expect(labels ...string) { c.add(0, labels...) }

func (c *counters) inc(labels ...string) { c.add(1, labels...) }

func (c *counters) add(v float64, labels ...string) {
	v, ok := c.guard.amount(c.name, v)
	if !ok {
		return
	}
	m, err := c.vec.GetMetricWithLabelValues(validLabels(labels)...)
	if err != nil {
		c.guard.fault(c.name, err.Error())
		return
	}
	m.Add(v)
}

// Describe implements [prometheus.Collector].
func (c *counters) Describe(out chan<- *prometheus.Desc) { c.vec.Describe(out) }

// Collect implements [prometheus.Collector].
func (c *counters) Collect(out chan<- prometheus.Metric) { c.vec.Collect(out) }

// gauges is a gauge with labels, or without.
type gauges struct {
	guard *guard
	name  string
	vec   *prometheus.GaugeVec
}

func (g *guard) gauges(name, help string, labels ...string) *gauges {
	return &gauges{g, name, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)}
}

// gauge returns a gauge without labels, at 0.
func (g *guard) gauge(name, help string) *gauges {
	all := g.gauges(name, help)
	all.set(0)
	return all
}

func (g *gauges) set(v float64, labels ...string) {
	m, err := g.vec.GetMetricWithLabelValues(validLabels(labels)...)
	if err != nil {
		g.guard.fault(g.name, err.Error())
		return
	}
	m.Set(v)
}

func (g *gauges) change(by float64, labels ...string) {
	m, err := g.vec.GetMetricWithLabelValues(validLabels(labels)...)
	if err != nil {
		g.guard.fault(g.name, err.Error())
		return
	}
	m.Add(by)
}

// Describe implements [prometheus.Collector].
func (g *gauges) Describe(out chan<- *prometheus.Desc) { g.vec.Describe(out) }

// Collect implements [prometheus.Collector].
func (g *gauges) Collect(out chan<- prometheus.Metric) { g.vec.Collect(out) }

// histograms is a histogram with labels, or without.
type histograms struct {
	guard *guard
	name  string
	vec   *prometheus.HistogramVec
}

func (g *guard) histograms(name, help string, buckets []float64, labels ...string) *histograms {
	opts := prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}
	return &histograms{g, name, prometheus.NewHistogramVec(opts, labels)}
}

// histogram returns a histogram without labels.
func (g *guard) histogram(name, help string, buckets []float64) *histograms {
	h := g.histograms(name, help, buckets)
	h.expect()
	return h
}

// expect makes a series.
func (h *histograms) expect(labels ...string) {
	if _, err := h.vec.GetMetricWithLabelValues(validLabels(labels)...); err != nil {
		h.guard.fault(h.name, err.Error())
	}
}

func (h *histograms) observe(v float64, labels ...string) {
	v, ok := h.guard.amount(h.name, v)
	if !ok {
		return
	}
	m, err := h.vec.GetMetricWithLabelValues(validLabels(labels)...)
	if err != nil {
		h.guard.fault(h.name, err.Error())
		return
	}
	m.Observe(v)
}

// Describe implements [prometheus.Collector].
func (h *histograms) Describe(out chan<- *prometheus.Desc) { h.vec.Describe(out) }

// Collect implements [prometheus.Collector].
func (h *histograms) Collect(out chan<- prometheus.Metric) { h.vec.Collect(out) }

// constant returns a value of a metric that is collected when it is asked for. A wrong one
// makes a scrape report an error.
func constant(desc *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(desc, kind, v, validLabels(labels)...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}
