package metrics

import (
	"fmt"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// namespace starts the name of every metric that is not about Go or the process.
const namespace = "spotworker"

// Config says what a worker's metrics are about.
type Config struct {
	// Version is that of the program.
	Version string

	// Slots is how many jobs the worker runs at once.
	Slots int

	// Healthy reports whether the worker's health check is passed.
	Healthy func() bool

	// Words are the values of labels that are known in advance.
	Words Words
}

// Words are the values that labels can have.
type Words struct {
	States, Outcomes, Starts, Saves, Circles, Acknowledgements, DrainReasons, PollResults, Refusals []string
}

// Metrics are those of one worker.
type Metrics struct {
	Jobs
	Platform
	Storage

	worker *prometheus.Registry // the worker's metrics alone
	served *prometheus.Registry // with those of Go and the process
}

// New returns metrics at zero.
func New(c Config) *Metrics {
	m := &Metrics{
		Jobs: newJobs(c.Words), Platform: newPlatform(c.Words), Storage: newStorage(),
		worker: prometheus.NewRegistry(), served: prometheus.NewRegistry(),
	}
	m.worker.MustRegister(about(c), slots(c), healthy(c))
	m.worker.MustRegister(m.Jobs.collectors()...)
	m.worker.MustRegister(m.Platform.collectors()...)
	m.worker.MustRegister(m.Storage.collectors()...)
	m.served.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.worker,
	)
	return m
}

// Register adds the worker's metrics to a registry of the program, none for nil,
// until unregister is called. Those of Go and the process are not among them: most
// registries have them.
func (m *Metrics) Register(r prometheus.Registerer) (unregister func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	if err := r.Register(m.worker); err != nil {
		return nil, fmt.Errorf("register the worker's metrics: %w", err)
	}
	return func() { r.Unregister(m.worker) }, nil
}

// Handler serves the metrics over HTTP.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.served, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// maxScrapes is how many requests for the metrics are answered at once. A
// scraper needs one.
const maxScrapes = 4

// Gatherer returns the metrics for readers in this process.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.served }

func about(c Config) prometheus.Collector {
	g := gaugeVec("build_info", "Always 1; the labels say which program this is.", "version", "goversion")
	g.WithLabelValues(c.Version, runtime.Version()).Set(1)
	return g
}

func slots(c Config) prometheus.Collector {
	g := gauge("job_slots", "Jobs that this worker runs at once.")
	g.Set(float64(c.Slots))
	return g
}

func healthy(c Config) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "healthy", Help: "1 while the loops of the worker turn, 0 when one of them hangs: what /healthz says.",
	}, func() float64 {
		if c.Healthy == nil || c.Healthy() {
			return 1
		}
		return 0
	})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
}

func gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

// byWord returns a counter with one label, at 0 for each of the words.
func byWord(words []string, name, help, label string) *prometheus.CounterVec {
	v := counterVec(name, help, label)
	for _, word := range words {
		v.WithLabelValues(word)
	}
	return v
}
