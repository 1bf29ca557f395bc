package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Effort are the metrics of the cost of jobs: time in handlers, waits, and failures.
type Effort struct {
	handlers      *counters
	sincePut      *histograms
	ran           *histograms
	waits         *histograms
	interruptions *histograms
	exits         *histograms
	failures      *counters
	lastCommit    *lastTime
}

var (
	// jobBuckets reach from jobs of milliseconds to jobs of days.
	jobBuckets = []float64{.01, .05, .25, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}

	// countBuckets count what mostly does not happen to a job.
	countBuckets = []float64{0, 1, 2, 3, 5, 10, 20, 50}
)

func newEffort(g *guard, w Words) Effort {
	e := Effort{
		handlers: g.counters("handler_seconds_total", "Time of handlers, by its outcome. Goodput is committed and handed_over.",
			"kind", "outcome"),
		sincePut: g.histograms("job_duration_seconds", "Time of committed jobs from put to commit.", jobBuckets, "kind"),
		ran:      g.histograms("job_run_duration_seconds", "Time of committed jobs in handlers, over all deliveries.", jobBuckets, "kind"),
		waits: g.histograms("job_wait_seconds", "Time that jobs waited until a handler was called: since they were put, released or "+
			"failed, or since the last write of a worker that ended uncleanly.", jobBuckets, "after"),
		interruptions: g.histogram("job_interruptions", "Interruptions of committed jobs: times that they were handed over.", countBuckets),
		exits:         g.histogram("job_unclean_exits", "Unclean exits of the workers of committed jobs, also before a replay.", countBuckets),
		failures:      g.counters("job_failures_total", "Failures of jobs, by their cause. A dead-lettered job counts too.", "kind", "class"),
		lastCommit: newLastTime("last_commit_timestamp_seconds", "When this worker committed a job last, by its machine's clock. Absent "+
			"before the first."),
	}
	for _, after := range w.Waits {
		e.waits.expect(after)
	}
	return e
}

func (e *Effort) collectors() []prometheus.Collector {
	return []prometheus.Collector{e.handlers, e.sincePut, e.ran, e.waits, e.interruptions, e.exits, e.failures, e.lastCommit}
}

// expect makes the series of a kind, at 0.
func (e *Effort) expect(kind string, w Words) {
	for _, outcome := range w.Efforts {
		e.handlers.expect(kind, outcome)
	}
	for _, class := range w.FailureClasses {
		e.failures.expect(kind, class)
	}
	e.sincePut.expect(kind)
	e.ran.expect(kind)
}

// Waited records how long a job waited for its handler.
func (e *Effort) Waited(after string, wait time.Duration) {
	e.waits.observe(wait.Seconds(), after)
}

// Spent adds the time of a handler.
func (e *Effort) Spent(kind, outcome string, took time.Duration) {
	e.handlers.add(took.Seconds(), kind, outcome)
}

// Committed records a job that is done.
func (e *Effort) Committed(kind string, sincePut, ran time.Duration, interruptions, exits int) {
	e.sincePut.observe(sincePut.Seconds(), kind)
	e.ran.observe(ran.Seconds(), kind)
	e.interruptions.observe(float64(interruptions))
	e.exits.observe(float64(exits))
	e.lastCommit.set(time.Now())
}

// Failed counts a failure.
func (e *Effort) Failed(kind, class string) { e.failures.inc(kind, class) }
