package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counters returns a counter with labels.
func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

// counter returns a counter without labels.
func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

// byWord returns a counter with one label, at 0 for each of the words.
func byWord(words []string, name, help, label string) *prometheus.CounterVec {
	c := counters(name, help, label)
	for _, word := range words {
		c.WithLabelValues(word)
	}
	return c
}

// gauges returns a gauge with labels.
func gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

// gauge returns a gauge without labels.
func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
}

// histograms returns a histogram with labels.
func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

// histogram returns a histogram without labels.
func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
}

// seconds returns a duration for a sum, which must not decrease. The difference of the readings
// of two clocks can be negative, and counts as 0.
func seconds(d time.Duration) float64 { return max(d, 0).Seconds() }

// amount returns a number for a sum.
func amount(n int64) float64 { return float64(max(n, 0)) }
