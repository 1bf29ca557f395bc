package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Jobs are the metrics of the worker's state and its jobs.
type Jobs struct {
	state      *gauges
	active     *gauges
	deliveries *counters
	outcomes   *counters
	starts     *counters
	saves      *counters
	savedBytes *counters
	saveTime   *histograms
	saveSize   *histograms
	leftOut    *counters
	moves      *counters
	outputs    *counters
	sentBytes  *counters
	circles    *counters
	refused    *counters
	broken     *gauges
	breaks     *counters
	states     []string
}

// saveBuckets reach from a small state in the same region to one of gigabytes.
var saveBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// sizeBuckets reach from a number to a folder of gigabytes.
var sizeBuckets = []float64{1 << 10, 16 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20, 512 << 20, 4 << 30, 32 << 30}

func newJobs(g *guard, w Words) Jobs {
	j := Jobs{
		state:      g.gauges("state", "1 for the lifecycle state that the worker is in, 0 for the others.", "state"),
		active:     g.gauge("jobs_in_hand", "Messages that the worker has claimed and not released yet."),
		deliveries: g.counter("deliveries_total", "Messages claimed; a job counts each time."),
		outcomes:   g.byWord(w.Outcomes, "delivery_outcomes_total", "Messages released, by the outcome for their job.", "outcome"),
		starts: g.byWord(w.Starts, "handler_starts_total",
			"Handlers called: first, resumed from a recorded state, or again from the beginning.", "start"),
		saves: g.byWord(w.Saves, "checkpoint_saves_total",
			"Attempts to record a job's state. Fenced means that another worker has the job by now.", "result"),
		savedBytes: g.counter("checkpoint_saved_bytes_total",
			"Size of the states recorded. Large states are sent in part, so fewer bytes may have been sent."),
		saveTime: g.histogram("checkpoint_save_duration_seconds", "Time that it took to record a state.", saveBuckets),
		saveSize: g.histogram("checkpoint_size_bytes", "Size of the states recorded.", sizeBuckets),
		leftOut:  g.counter("states_left_out_total", "Jobs released without their last state: the work since the checkpoint before is repeated."),
		moves: g.byWord(w.Moves, "job_moves_total",
			"Jobs moved to the on-demand queue: after too many interruptions, or because they may miss their deadline.", "reason"),
		outputs:   g.counter("outputs_sent_total", "Output files that jobs stored; a changed file counts again."),
		sentBytes: g.counter("outputs_sent_bytes_total", "Bytes of these files."),
		circles: g.byWord(w.Circles, "jobs_circling_total",
			"Jobs that do not end: counted at the 10th, 20th, 40th ... of their failures in all, or of their breaks in a row without progress of "+
				"the fraction.", "cause"),
		refused: g.byWord(w.Refusals, "storage_refusals_total",
			"Messages requeued because storage permanently refuses a blob of their job, by the service's error code.", "code"),
		broken: g.gauges("breaker_open", "1 while the circuit breaker of a kind is open or half-open: this worker leaves its jobs to others.",
			"kind"),
		breaks: g.counters("breaker_trips_total", "Times that the circuit breaker of a kind opened, also after one job was tried.", "kind"),
		states: w.States,
	}
	for i, state := range w.States {
		first := 0.0
		if i == 0 {
			first = 1
		}
		j.state.set(first, state)
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
			j.state.set(0, other)
		}
	}
	j.state.set(1, state)
}

// Delivered counts a claimed message.
func (j *Jobs) Delivered() {
	j.deliveries.inc()
	j.active.change(1)
}

// Ended counts a message that was released.
func (j *Jobs) Ended(outcome string) {
	j.outcomes.inc(outcome)
	j.active.change(-1)
}

// Started counts a handler call.
func (j *Jobs) Started(how string) { j.starts.inc(how) }

// Saved counts an attempt to save a state.
func (j *Jobs) Saved(result string, bytes int64, took time.Duration) {
	j.saves.inc(result)
	if result == resultSaved {
		j.savedBytes.add(float64(bytes))
		j.saveTime.observe(took.Seconds())
		j.saveSize.observe(float64(bytes))
	}
}

// resultSaved is the result of an attempt that succeeded.
const resultSaved = "saved"

// Moved counts a job that was put on the on-demand queue.
func (j *Jobs) Moved(reason string) { j.moves.inc(reason) }

// Circles counts a job that keeps failing or breaking off.
func (j *Jobs) Circles(cause string) { j.circles.inc(cause) }

// Broke records that a circuit breaker opened.
func (j *Jobs) Broke(kind string) {
	j.breaks.inc(kind)
	j.broken.set(1, kind)
}

// Recovered records that a circuit breaker is closed.
func (j *Jobs) Recovered(kind string) {
	j.breaks.expect(kind) // which begins at 0
	j.broken.set(0, kind)
}

// Refused counts a message that was requeued because storage refused a blob.
func (j *Jobs) Refused(code string) { j.refused.inc(code) }

// OutputSent counts an output file of that many bytes.
func (j *Jobs) OutputSent(bytes int64) {
	j.outputs.inc()
	j.sentBytes.add(float64(bytes))
}

// LeftOut counts a state that could not be saved in time.
func (j *Jobs) LeftOut() { j.leftOut.inc() }
