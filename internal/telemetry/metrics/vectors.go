package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// registry has the worker's metrics, and makes them.
type registry struct{ *prometheus.Registry }

// add registers a metric.
func add[C prometheus.Collector](r registry, c C) C {
	r.MustRegister(c)
	return c
}

// counters returns a counter with labels.
func (r registry) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return add(r, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels))
}

// counter returns a counter without labels.
func (r registry) counter(name, help string) prometheus.Counter {
	return add(r, prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}))
}

// byWord returns a counter with one label, at 0 for each of the words.
func (r registry) byWord(words []string, name, help, label string) *prometheus.CounterVec {
	c := r.counters(name, help, label)
	for _, word := range words {
		c.WithLabelValues(word)
	}
	return c
}

// gauges returns a gauge with labels.
func (r registry) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return add(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels))
}

// gauge returns a gauge without labels.
func (r registry) gauge(name, help string) prometheus.Gauge {
	return add(r, prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}))
}

// histograms returns a histogram with labels.
func (r registry) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return add(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels))
}

// histogram returns a histogram without labels.
func (r registry) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return add(r, prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}))
}

// seconds returns a duration for a sum, which must not decrease. The difference of the readings
// of two clocks can be negative, and counts as 0.
func seconds(d time.Duration) float64 { return max(d, 0).Seconds() }

// amount returns a number for a sum.
func amount(n int64) float64 { return float64(max(n, 0)) }
