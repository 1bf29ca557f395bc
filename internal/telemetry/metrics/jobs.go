package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	states     []string
}

// saveBuckets reach from a small state in the same region to one of gigabytes.
var saveBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// sizeBuckets reach from a number to a folder of gigabytes.
var sizeBuckets = []float64{1 << 10, 16 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20, 512 << 20, 4 << 30, 32 << 30}

func newJobs(w Words) Jobs {
	j := Jobs{
		state:      gauges("state", "1 for the lifecycle state that the worker is in, 0 for the others.", "state"),
		active:     gauge("jobs_in_hand", "Messages that the worker has claimed and not released yet."),
		deliveries: counter("deliveries_total", "Messages claimed; a job counts each time."),
		outcomes:   byWord(w.Outcomes, "delivery_outcomes_total", "Messages released, by the outcome for their job.", "outcome"),
		starts: byWord(w.Starts, "handler_starts_total",
			"Handlers called: first, resumed from a recorded state, or again from the beginning.", "start"),
		saves: byWord(w.Saves, "checkpoint_saves_total",
			"Attempts to record a job's state. Fenced means that another worker has the job by now.", "result"),
		savedBytes: counter("checkpoint_saved_bytes_total",
			"Size of the states recorded. Large states are sent in part, so fewer bytes may have been sent."),
		saveTime: histogram("checkpoint_save_duration_seconds", "Time that it took to record a state.", saveBuckets),
		saveSize: histogram("checkpoint_size_bytes", "Size of the states recorded.", sizeBuckets),
		leftOut:  counter("states_left_out_total", "Jobs released without their last state: the work since the checkpoint before is repeated."),
		moves: byWord(w.Moves, "job_moves_total",
			"Jobs moved to the on-demand queue: after too many interruptions, or because they may miss their deadline.", "reason"),
		outputs:   counter("outputs_sent_total", "Output files that jobs stored; a changed file counts again."),
		sentBytes: counter("outputs_sent_bytes_total", "Bytes of these files."),
		circles: byWord(w.Circles, "jobs_circling_total",
			"Jobs that do not end: counted at the 10th, 20th, 40th ... of their failures in all, or of their breaks in a row without progress of "+
				"the fraction.", "cause"),
		refused: byWord(w.Refusals, "storage_refusals_total",
			"Messages requeued because storage permanently refuses a blob of their job, by the service's error code.", "code"),
		broken: gauges("breaker_open", "1 while the circuit breaker of a kind is open or half-open: this worker leaves its jobs to others.",
			"kind"),
		breaks: counters("breaker_trips_total", "Times that the circuit breaker of a kind opened, also after one job was tried.", "kind"),
		states: w.States,
	}
	for i, state := range w.States {
		first := 0.0
		if i == 0 {
			first = 1
		}
		j.state.WithLabelValues(state).Set(first)
	}
	return j
}

func (j *Jobs) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		j.state, j.active, j.deliveries, j.outcomes, j.starts, j.saves, j.savedBytes, j.saveTime, j.saveSize, j.leftOut, j.moves,
		j.outputs, j.sentBytes, j.circles, j.refused, j.broken, j.breaks,
	}
}

// Entered records the state that the worker is in.
func (j *Jobs) Entered(state string, _ bool) {
	for _, other := range j.states {
		if other != state {
			j.state.WithLabelValues(other).Set(0)
		}
	}
	j.state.WithLabelValues(state).Set(1)
}

// Delivered counts a claimed message.
func (j *Jobs) Delivered() {
	j.deliveries.Inc()
	j.active.Inc()
}

// Ended counts a message that was released.
func (j *Jobs) Ended(outcome string) {
	j.outcomes.WithLabelValues(outcome).Inc()
	j.active.Dec()
}

// Started counts a handler call.
func (j *Jobs) Started(how string) { j.starts.WithLabelValues(how).Inc() }

// Saved counts an attempt to save a state.
func (j *Jobs) Saved(result string, bytes int64, took time.Duration) {
	j.saves.WithLabelValues(result).Inc()
	if result == resultSaved {
		j.savedBytes.Add(amount(bytes))
		j.saveTime.Observe(seconds(took))
		j.saveSize.Observe(amount(bytes))
	}
}

// resultSaved is the result of an attempt that succeeded.
const resultSaved = "saved"

// Moved counts a job that was put on the on-demand queue.
func (j *Jobs) Moved(reason string) { j.moves.WithLabelValues(reason).Inc() }

// Circles counts a job that keeps failing or breaking off.
func (j *Jobs) Circles(cause string) { j.circles.WithLabelValues(cause).Inc() }

// Broke records that a circuit breaker opened.
func (j *Jobs) Broke(kind string) {
	j.breaks.WithLabelValues(kind).Inc()
	j.broken.WithLabelValues(kind).Set(1)
}

// Recovered records that a circuit breaker is closed.
func (j *Jobs) Recovered(kind string) {
	j.breaks.WithLabelValues(kind) // which begins at 0
	j.broken.WithLabelValues(kind).Set(0)
}

// Refused counts a message that was requeued because storage refused a blob.
func (j *Jobs) Refused(code string) { j.refused.WithLabelValues(code).Inc() }

// OutputSent counts an output file of that many bytes.
func (j *Jobs) OutputSent(bytes int64) {
	j.outputs.Inc()
	j.sentBytes.Add(amount(bytes))
}

// LeftOut counts a state that could not be saved in time.
func (j *Jobs) LeftOut() { j.leftOut.Inc() }
