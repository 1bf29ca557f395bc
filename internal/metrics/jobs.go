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
	stepsBack  prometheus.Counter
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
		state:      gaugeVec("state", "1 for the lifecycle state that the worker is in, 0 for the others.", "state"),
		active:     gauge("jobs_in_hand", "Messages that the worker has claimed and not released yet."),
		deliveries: counter("deliveries_total", "Messages claimed. Those of one job count each time."),
		outcomes:   byWord(w.Outcomes, "delivery_outcomes_total", "Messages released, by the outcome for their job.", "outcome"),
		starts: byWord(w.Starts, "handler_starts_total",
			"Handlers called: first, resumed from a recorded state, or again from the beginning since nothing was recorded.", "start"),
		saves: byWord(w.Saves, "checkpoint_saves_total",
			"Attempts to record a job's state. Fenced means that another worker has the job by now.", "result"),
		savedBytes: counter("checkpoint_saved_bytes_total",
			"Size of the states recorded. Of a large state only what changed is sent, so this may be more than what went over the network."),
		saveTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "checkpoint_save_duration_seconds",
			Help: "Time that it took to record a state.", Buckets: saveBuckets,
		}),
		saveSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "checkpoint_size_bytes",
			Help: "Size of the states recorded.", Buckets: sizeBuckets,
		}),
		stepsBack: counter("states_stepped_back_total", "Jobs that resumed from the state before the last, because the last one could not be used."),
		leftOut:   counter("states_left_out_total", "Jobs released without their last state: the work since the checkpoint before is repeated."),
		moves: byWord(w.Moves, "job_moves_total",
			"Jobs moved to the on-demand queue: after too many interruptions, or because they may miss their deadline.", "reason"),
		outputs:   counter("outputs_sent_total", "Output files that jobs stored. One that changed and was stored again counts each time."),
		sentBytes: counter("outputs_sent_bytes_total", "Bytes of these files."),
		circles: byWord(w.Circles, "jobs_circling_total",
			"Jobs that do not end: counted at the 10th, 20th, 40th ... of their failures in all, or of their breaks in a row without progress of the fraction.", "cause"),
		refused: byWord(w.Refusals, "storage_refusals_total",
			"Messages requeued because storage permanently refuses a blob of their job, by the service's error code.", "code"),
		broken: gaugeVec("breaker_open", "1 while the circuit breaker of a kind is open or half-open: its jobs fail in a row on this worker, which leaves them to others.", "kind"),
		breaks: counterVec("breaker_trips_total", "Times that the circuit breaker of a kind opened, also after one job was tried.", "kind"),
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
		j.state, j.active, j.deliveries, j.outcomes, j.starts, j.saves, j.savedBytes, j.saveTime, j.saveSize, j.leftOut, j.stepsBack, j.moves, j.outputs, j.sentBytes, j.circles, j.refused, j.broken, j.breaks,
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
		j.savedBytes.Add(float64(bytes))
		j.saveTime.Observe(took.Seconds())
		j.saveSize.Observe(float64(bytes))
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
	j.sentBytes.Add(float64(bytes))
}

// SteppedBack counts a job that resumed from the state before the last.
func (j *Jobs) SteppedBack() { j.stepsBack.Inc() }

// LeftOut counts a state that could not be saved in time.
func (j *Jobs) LeftOut() { j.leftOut.Inc() }
