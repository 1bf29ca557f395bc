package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// Effort are the metrics of the cost of jobs: time in handlers, waits, and failures.
type Effort struct {
	handlers      *prometheus.CounterVec
	sincePut      *prometheus.HistogramVec
	ran           *prometheus.HistogramVec
	waits         *prometheus.HistogramVec
	interruptions prometheus.Histogram
	exits         prometheus.Histogram
	failures      *prometheus.CounterVec
	lastCommit    *lastTime
}

var (
	// jobBuckets reach from jobs of milliseconds to jobs of days.
	jobBuckets = []float64{.01, .05, .25, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}

	// countBuckets count what mostly does not happen to a job.
	countBuckets = []float64{0, 1, 2, 3, 5, 10, 20, 50}
)

func newEffort(r registry) Effort {
	e := Effort{
		handlers: r.counters("handler_seconds_total", "Time of handlers, by its outcome. Goodput is committed and handed_over.",
			"kind", "outcome"),
		sincePut: r.histograms("job_duration_seconds", "Time of committed jobs from put to commit.", jobBuckets, "kind"),
		ran:      r.histograms("job_run_duration_seconds", "Time of committed jobs in handlers, over all deliveries.", jobBuckets, "kind"),
		waits: r.histograms("job_wait_seconds", "Time that jobs waited until a handler was called: since they were put, released or "+
			"failed, or since the last write of a worker that ended uncleanly.", jobBuckets, "after"),
		interruptions: r.histogram("job_interruptions", "Interruptions of committed jobs: times that they were handed over.", countBuckets),
		exits:         r.histogram("job_unclean_exits", "Unclean exits of the workers of committed jobs, also before a replay.", countBuckets),
		failures:      r.counters("job_failures_total", "Failures of jobs, by their cause. A dead-lettered job counts too.", "kind", "class"),
		lastCommit: add(r, newLastTime("last_commit_timestamp_seconds", "When this worker committed a job last, by its machine's clock. Absent "+
			"before the first.")),
	}
	for _, after := range observe.Waits {
		e.waits.WithLabelValues(after)
	}
	return e
}

// expect makes the series of a kind, at 0.
func (e *Effort) expect(kind string) {
	for _, outcome := range observe.Efforts {
		e.handlers.WithLabelValues(kind, outcome)
	}
	for _, class := range observe.FailureClasses {
		e.failures.WithLabelValues(kind, class)
	}
	e.sincePut.WithLabelValues(kind)
	e.ran.WithLabelValues(kind)
}

func (e *Effort) observe(event observe.Event) {
	switch event := event.(type) {
	case observe.Recovered:
		e.expect(event.Kind)
	case observe.Waited:
		e.waits.WithLabelValues(event.After).Observe(seconds(event.For))
	case observe.Spent:
		e.handlers.WithLabelValues(event.Kind, event.Effort).Add(seconds(event.Took))
	case observe.Committed:
		e.sincePut.WithLabelValues(event.Kind).Observe(seconds(event.SincePut))
		e.ran.WithLabelValues(event.Kind).Observe(seconds(event.Ran))
		e.interruptions.Observe(float64(event.Interruptions))
		e.exits.Observe(float64(event.Exits))
		e.lastCommit.set(time.Now())
	case observe.Failed:
		e.failures.WithLabelValues(event.Kind, event.Class).Inc()
	}
}
