package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// Jobs are the metrics of the worker's state and its jobs.
type Jobs struct {
	state      *prometheus.GaugeVec
	active     prometheus.Gauge
	deliveries prometheus.Counter
	outcomes   *prometheus.CounterVec
	starts     *prometheus.CounterVec
	saves      *prometheus.CounterVec
	savedBytes prometheus.Counter
	saveTime   prometheus.Histogram
	saveSize   prometheus.Histogram
	leftOut    prometheus.Counter
	moves      *prometheus.CounterVec
	outputs    prometheus.Counter
	sentBytes  prometheus.Counter
	circles    *prometheus.CounterVec
	refused    *prometheus.CounterVec
	broken     *prometheus.GaugeVec
	breaks     *prometheus.CounterVec
}

// saveBuckets reach from a small state in the same region to one of gigabytes.
var saveBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// sizeBuckets reach from a number to a folder of gigabytes.
var sizeBuckets = []float64{1 << 10, 16 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20, 512 << 20, 4 << 30, 32 << 30}

func newJobs(r registry, refusals []string) Jobs {
	j := Jobs{
		state:      r.gauges("state", "1 for the lifecycle state that the worker is in, 0 for the others.", "state"),
		active:     r.gauge("jobs_in_hand", "Messages that the worker has claimed and not released yet."),
		deliveries: r.counter("deliveries_total", "Messages claimed; a job counts each time."),
		outcomes:   r.byWord(observe.Outcomes, "delivery_outcomes_total", "Messages released, by the outcome for their job.", "outcome"),
		starts: r.byWord(observe.Starts, "handler_starts_total",
			"Handlers called: first, resumed from a recorded state, or again from the beginning.", "start"),
		saves: r.byWord(observe.Saves, "checkpoint_saves_total",
			"Attempts to record a job's state. Fenced means that another worker has the job by now.", "result"),
		savedBytes: r.counter("checkpoint_saved_bytes_total",
			"Size of the states recorded. Large states are sent in part, so fewer bytes may have been sent."),
		saveTime: r.histogram("checkpoint_save_duration_seconds", "Time that it took to record a state.", saveBuckets),
		saveSize: r.histogram("checkpoint_size_bytes", "Size of the states recorded.", sizeBuckets),
		leftOut:  r.counter("states_left_out_total", "Jobs released without their last state: the work since the checkpoint before is repeated."),
		moves: r.byWord(observe.Moves, "job_moves_total",
			"Jobs moved to the on-demand queue: after too many interruptions, or because they may miss their deadline.", "reason"),
		outputs:   r.counter("outputs_sent_total", "Output files that jobs stored; a changed file counts again."),
		sentBytes: r.counter("outputs_sent_bytes_total", "Bytes of these files."),
		circles: r.byWord(observe.Circling, "jobs_circling_total",
			"Jobs that do not end: counted at the 10th, 20th, 40th ... of their failures in all, or of their breaks in a row without progress of "+
				"the fraction.", "cause"),
		refused: r.byWord(refusals, "storage_refusals_total",
			"Messages requeued because storage permanently refuses a blob of their job, by the service's error code.", "code"),
		broken: r.gauges("breaker_open", "1 while the circuit breaker of a kind is open or half-open: this worker leaves its jobs to others.",
			"kind"),
		breaks: r.counters("breaker_trips_total", "Times that the circuit breaker of a kind opened, also after one job was tried.", "kind"),
	}
	j.enter(lifecycle.Start)
	return j
}

// enter shows the state that the worker is in.
func (j *Jobs) enter(state lifecycle.State) {
	for _, other := range lifecycle.States() {
		j.state.WithLabelValues(other.String()).Set(0)
	}
	j.state.WithLabelValues(state.String()).Set(1)
}

func (j *Jobs) observe(e observe.Event) {
	switch e := e.(type) {
	case observe.Entered:
		j.enter(e.State)
	case observe.Delivered:
		j.deliveries.Inc()
		j.active.Inc()
	case observe.Ended:
		j.outcomes.WithLabelValues(e.Outcome).Inc()
		j.active.Dec()
	case observe.Started:
		j.starts.WithLabelValues(e.How).Inc()
	case observe.Saved:
		j.saved(e)
	case observe.LeftOut:
		j.leftOut.Inc()
	case observe.Moved:
		j.moves.WithLabelValues(e.Reason).Inc()
	case observe.OutputSent:
		j.outputs.Inc()
		j.sentBytes.Add(amount(e.Bytes))
	case observe.Circles:
		j.circles.WithLabelValues(e.Cause).Inc()
	case observe.Refused:
		j.refused.WithLabelValues(e.Code).Inc()
	case observe.Broke:
		j.breaks.WithLabelValues(e.Kind).Inc()
		j.broken.WithLabelValues(e.Kind).Set(1)
	case observe.Recovered:
		j.breaks.WithLabelValues(e.Kind) // which begins at 0
		j.broken.WithLabelValues(e.Kind).Set(0)
	}
}

// saved counts an attempt to save a state.
func (j *Jobs) saved(e observe.Saved) {
	j.saves.WithLabelValues(e.Result).Inc()
	if e.Result == observe.SavedWell {
		j.savedBytes.Add(amount(e.Bytes))
		j.saveTime.Observe(seconds(e.Took))
		j.saveSize.Observe(amount(e.Bytes))
	}
}
