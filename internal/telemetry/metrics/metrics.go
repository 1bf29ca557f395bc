package metrics

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// namespace starts the name of every metric that is not about Go or the process.
const namespace = "spotworker"

// Config describes the worker that the metrics are about.
type Config struct {
	// Version is the program's.
	Version string

	// Slots is how many jobs the worker runs at once.
	Slots int

	// Healthy reports whether the worker's health check is passed.
	Healthy func() bool

	// Space returns how much of the file system of the scratch folder is free and its
	// size, in bytes; 0, 0 if that is unknown. Nil if there is no such folder.
	Space func() (free, size int64)

	// OOMKills returns how many processes were killed because memory ran out.
	// Nil if that is unknown.
	OOMKills func() (kills int64, ok bool)

	// Refusals are the error codes with which storage permanently refuses a blob.
	Refusals []string

	// Log gets the faults of scrapes. Optional.
	Log *slog.Logger
}

// Metrics are the metrics of one worker.
type Metrics struct {
	Jobs
	Effort
	Platform
	Storage
	Inputs
	*silence
	*queues

	slots  *slots
	worker *prometheus.Registry // the worker's metrics alone
	served *prometheus.Registry // with the metrics of Go and the process
	log    *slog.Logger
}

// New returns metrics at zero.
func New(c Config) *Metrics {
	r := registry{prometheus.NewRegistry()}
	m := &Metrics{
		Jobs: newJobs(r, c.Refusals), Effort: newEffort(r), silence: add(r, newSilence()), queues: add(r, newQueues()),
		slots: add(r, newSlots(c.Slots)), Platform: newPlatform(r), Storage: newStorage(r), Inputs: newInputs(r),
		worker: r.Registry, served: prometheus.NewRegistry(), log: c.Log,
	}
	r.gauges("build_info", "Always 1; the labels say which program this is.", "version", "goversion").
		WithLabelValues(c.Version, runtime.Version()).Set(1)
	add(r, newLastTime("start_timestamp_seconds", "When the worker started, by its machine's clock.")).set(time.Now())
	r.gauge("job_slots", "Jobs that this worker runs at once.").Set(float64(c.Slots))
	r.MustRegister(healthy(c))
	r.MustRegister(machine(c)...)
	m.served.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.worker,
	)
	return m
}

// Register adds the worker's metrics to a registry of the program, none for nil, until
// unregister is called. Metrics of Go and the process are not among them: most registries
// have them.
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
	o := promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.ContinueOnError}
	if m.log != nil {
		o.ErrorLog = slog.NewLogLogger(m.log.Handler(), slog.LevelError)
	}
	return promhttp.HandlerFor(m.served, o)
}

// maxScrapes is how many requests for the metrics are answered at once. A
// scraper needs one.
const maxScrapes = 4

// Gatherer returns the metrics for readers in this process.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.served }

func healthy(c Config) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "healthy", Help: "1 while the loops of the worker turn, 0 when one of them hangs, as /healthz reports.",
	}, func() float64 {
		if c.Healthy == nil || c.Healthy() {
			return 1
		}
		return 0
	})
}

// machine returns the metrics of the machine that a worker knows better than others.
func machine(c Config) (all []prometheus.Collector) {
	if c.Space != nil {
		for name, value := range map[string]func() int64{
			"scratch_free_bytes": func() int64 { free, _ := c.Space(); return free },
			"scratch_size_bytes": func() int64 { _, size := c.Space(); return size },
		} {
			all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Namespace: namespace, Name: name, Help: scratchHelp[name],
			}, func() float64 { return float64(value()) }))
		}
	}
	if c.OOMKills != nil {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: namespace, Name: "oom_kills_total",
			Help: "Processes that the kernel killed because memory ran out: of the worker's control group, or its programs.",
		}, func() float64 { kills, _ := c.OOMKills(); return float64(kills) }))
	}
	return all
}

var scratchHelp = map[string]string{
	"scratch_free_bytes": "Space for programs of jobs that is free on the file system of --scratch.",
	"scratch_size_bytes": "Size of the file system of --scratch.",
}

// Observe counts an event.
func (m *Metrics) Observe(e observe.Event) {
	m.Jobs.observe(e)
	m.Effort.observe(e)
	m.Platform.observe(e)
	m.slots.observe(e)
	switch e := e.(type) {
	case observe.InputsUsed:
		m.Inputs.count(e)
	case observe.QueueRead:
		m.queues.set(e)
	case observe.Watching:
		m.silence.watch(e.Look)
	}
}
