package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// lastTime is when something happened last. It is absent before the first time.
type lastTime struct {
	desc *prometheus.Desc
	at   atomic.Int64 // in milliseconds since 1970; 0 for never
}

func newLastTime(name, help string) *lastTime {
	return &lastTime{desc: prometheus.NewDesc(namespace+"_"+name, help, nil, nil)}
}

func (l *lastTime) set(at time.Time) { l.at.Store(at.UnixMilli()) }

// Describe implements [prometheus.Collector].
func (l *lastTime) Describe(out chan<- *prometheus.Desc) { out <- l.desc }

// Collect implements [prometheus.Collector].
func (l *lastTime) Collect(out chan<- prometheus.Metric) {
	if at := l.at.Load(); at != 0 {
		out <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, float64(at)/1e3)
	}
}

// silence shows how the running jobs report. It asks when it is scraped.
type silence struct {
	mu  sync.Mutex
	ask func() observe.Sight // nil before there is a worker

	report, checkpoint, silent, lacking *prometheus.Desc
}

func newSilence() *silence {
	return &silence{
		report: prometheus.NewDesc(namespace+"_oldest_report_age_seconds",
			"Age of the oldest last report of all running jobs; 0 without one.", nil, nil),
		checkpoint: prometheus.NewDesc(namespace+"_oldest_checkpoint_age_seconds",
			"Age of the oldest checkpoint of all running jobs, or since when their handlers run: the work that a sudden death repeats.", nil, nil),
		silent: prometheus.NewDesc(namespace+"_jobs_silent",
			"Running jobs that are silent for unusually long; alert SpotworkerJobSilent has the rule.", nil, nil),
		lacking: prometheus.NewDesc(namespace+"_jobs_without_worker",
			"Jobs that this worker hides because no live worker has their kind, or the machine for their state. "+
				"The sum over all workers is about their number.",
			nil, nil),
	}
}

// watch sets the function to ask.
func (s *silence) watch(ask func() observe.Sight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ask = ask
}

// Describe implements [prometheus.Collector].
func (s *silence) Describe(out chan<- *prometheus.Desc) {
	out <- s.report
	out <- s.checkpoint
	out <- s.silent
	out <- s.lacking
}

// Collect implements [prometheus.Collector].
func (s *silence) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	ask := s.ask
	s.mu.Unlock()
	if ask == nil {
		return
	}
	now := ask()
	out <- prometheus.MustNewConstMetric(s.report, prometheus.GaugeValue, now.Report.Seconds())
	out <- prometheus.MustNewConstMetric(s.checkpoint, prometheus.GaugeValue, now.Checkpoint.Seconds())
	out <- prometheus.MustNewConstMetric(s.silent, prometheus.GaugeValue, float64(now.Silent))
	out <- prometheus.MustNewConstMetric(s.lacking, prometheus.GaugeValue, float64(now.Lacking))
}

// readingFor is how long the reading of a queue is shown: few workers of a fleet read,
// and others may be the next ones.
const readingFor = 90 * time.Second

// queues shows how long queues are, as this worker read them last.
type queues struct {
	mu       sync.Mutex
	readings map[string]reading

	messages, oldest, read *prometheus.Desc
}

type reading struct {
	at       time.Time
	messages int
	oldest   time.Duration
}

func newQueues() *queues {
	labels := []string{"queue"}
	return &queues{
		readings: map[string]reading{},
		messages: prometheus.NewDesc(namespace+"_queue_messages",
			"About how many messages a queue has, hidden ones included. A reading is shown for 90 s.", labels, nil),
		oldest: prometheus.NewDesc(namespace+"_queue_oldest_message_age_seconds",
			"For how long the message at the front of a queue has been on it; 0 if none is visible.", labels,
			nil),
		read: prometheus.NewDesc(namespace+"_queue_read_timestamp_seconds",
			"When this worker read the queue. The newest reading counts.", labels, nil),
	}
}

// set sets the readings of a queue.
func (q *queues) set(e observe.QueueRead) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.readings[e.Queue] = reading{time.Now(), e.Messages, e.Oldest}
}

// Describe implements [prometheus.Collector].
func (q *queues) Describe(out chan<- *prometheus.Desc) {
	out <- q.messages
	out <- q.oldest
	out <- q.read
}

// Collect implements [prometheus.Collector].
func (q *queues) Collect(out chan<- prometheus.Metric) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for queue, r := range q.readings {
		if time.Since(r.at) > readingFor {
			continue
		}
		out <- prometheus.MustNewConstMetric(q.messages, prometheus.GaugeValue, float64(r.messages), queue)
		out <- prometheus.MustNewConstMetric(q.oldest, prometheus.GaugeValue, r.oldest.Seconds(), queue)
		out <- prometheus.MustNewConstMetric(q.read, prometheus.GaugeValue, float64(r.at.UnixMilli())/1e3, queue)
	}
}

// slots shows the use of the worker's slots.
type slots struct {
	*activity.Slots
	desc *prometheus.Desc
}

func newSlots(total int) *slots {
	return &slots{Slots: activity.NewSlots(total), desc: prometheus.NewDesc(namespace+"_slot_seconds_total", slotsHelp, []string{"state"},
		nil)}
}

func (s *slots) observe(e observe.Event) {
	switch e := e.(type) {
	case observe.Delivered:
		s.Change(1, 0)
	case observe.Ended:
		s.Change(-1, 0)
	case observe.Started:
		s.Change(0, 1)
	case observe.Returned:
		s.Change(0, -1)
	case observe.Entered:
		s.Work(e.State == lifecycle.Process)
	}
}

const slotsHelp = "Time of all job slots, by their use: a handler ran; a message was claimed and no handler ran (around), mostly for " +
	"calls to storage; idle, while the worker takes jobs; or closed, while it starts or drains, or an operator drained it."

// Describe implements [prometheus.Collector].
func (s *slots) Describe(out chan<- *prometheus.Desc) { out <- s.desc }

// Collect implements [prometheus.Collector].
func (s *slots) Collect(out chan<- prometheus.Metric) {
	t := s.Times()
	for state, took := range map[string]time.Duration{"handler": t.Handler, "around": t.Around, "idle": t.Idle, "closed": t.Closed} {
		out <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, took.Seconds(), state)
	}
}
