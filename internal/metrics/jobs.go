package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Jobs are the metrics about states of the worker and its jobs.
type Jobs struct {
	state      *prometheus.GaugeVec
	inHand     prometheus.Gauge
	deliveries prometheus.Counter
	outcomes   *prometheus.CounterVec
	starts     *prometheus.CounterVec
	saves      *prometheus.CounterVec
	savedBytes prometheus.Counter
	saveTime   prometheus.Histogram
	leftOut    prometheus.Counter
	circles    *prometheus.CounterVec
	refused    *prometheus.CounterVec
	broken     *prometheus.GaugeVec
	breaks     *prometheus.CounterVec
	states     []string
}

// saveBuckets reach from a small state in the same region to one of gigabytes.
var saveBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

func newJobs(w Words) Jobs {
	j := Jobs{
		state:      gaugeVec("state", "1 for the lifecycle state that the worker is in, 0 for the others.", "state"),
		inHand:     gauge("jobs_in_hand", "Messages that the worker has taken and not let go of."),
		deliveries: counter("deliveries_total", "Messages taken in hand. Those of one job count each time."),
		outcomes:   byWord(w.Outcomes, "delivery_outcomes_total", "Messages let go of, by what became of their job.", "outcome"),
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
		leftOut: counter("states_left_out_total", "Jobs let go of without their last state: what was done since the checkpoint before is done again."),
		circles: byWord(w.Circles, "jobs_circling_total",
			"Jobs that do not come to an end: counted at the 10th, 20th, 40th ... of their failures in all, or of their breaks in a row without progress of the fraction.", "cause"),
		refused: byWord(w.Refusals, "storage_refusals_total",
			"Messages put back because storage refuses a blob of their job until somebody changes that, by the service's error code.", "code"),
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
		j.state, j.inHand, j.deliveries, j.outcomes, j.starts, j.saves, j.savedBytes, j.saveTime, j.leftOut, j.circles, j.refused, j.broken, j.breaks,
	}
}

// Entered takes note of the worker's state.
func (j *Jobs) Entered(state string, _ bool) {
	for _, other := range j.states {
		if other != state {
			j.state.WithLabelValues(other).Set(0)
		}
	}
	j.state.WithLabelValues(state).Set(1)
}

// Delivered takes note of a message in hand.
func (j *Jobs) Delivered() {
	j.deliveries.Inc()
	j.inHand.Inc()
}

// Ended takes note of a message that was let go of.
func (j *Jobs) Ended(outcome string) {
	j.outcomes.WithLabelValues(outcome).Inc()
	j.inHand.Dec()
}

// Started takes note of a handler that is called.
func (j *Jobs) Started(how string) { j.starts.WithLabelValues(how).Inc() }

// Saved takes note of an attempt to record a state.
func (j *Jobs) Saved(result string, bytes int64, took time.Duration) {
	j.saves.WithLabelValues(result).Inc()
	if result == resultSaved {
		j.savedBytes.Add(float64(bytes))
		j.saveTime.Observe(took.Seconds())
	}
}

// resultSaved is the result of an attempt to record a state that did.
const resultSaved = "saved"

// Circles counts a report of a job that does not come to an end.
func (j *Jobs) Circles(cause string) { j.circles.WithLabelValues(cause).Inc() }

// Broke takes note of a circuit breaker that opened.
func (j *Jobs) Broke(kind string) {
	j.breaks.WithLabelValues(kind).Inc()
	j.broken.WithLabelValues(kind).Set(1)
}

// Recovered takes note of a circuit breaker that is closed.
func (j *Jobs) Recovered(kind string) {
	j.breaks.WithLabelValues(kind) // which begins at 0
	j.broken.WithLabelValues(kind).Set(0)
}

// Refused takes note of a message that was put back because of a refusal.
func (j *Jobs) Refused(code string) { j.refused.WithLabelValues(code).Inc() }

// LeftOut takes note of a state that could not be recorded in time.
func (j *Jobs) LeftOut() { j.leftOut.Inc() }
