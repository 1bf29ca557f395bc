package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// slots adds up what the worker's slots did. The times of all states together are the
// number of slots times the worker's age.
type slots struct {
	mu      sync.Mutex
	total   int       // slots
	since   time.Time // up to when the times below are
	working bool      // the worker is in the state that takes jobs
	claimed int       // messages in slots
	running int       // of them, those whose handlers run
	handler time.Duration
	around  time.Duration // claimed, no handler runs
	idle    time.Duration // free, the worker takes jobs
	closed  time.Duration // free, the worker takes none

	desc *prometheus.Desc
}

func newSlots(total int) *slots {
	return &slots{total: total, since: time.Now(), desc: prometheus.NewDesc(namespace+"_slot_seconds_total", slotsHelp, []string{"state"}, nil)}
}

const slotsHelp = "Time of all job slots by what they did: a handler ran; a message was claimed and no handler ran (around), mostly for calls to storage; " +
	"idle, while the worker takes jobs; or closed, while it starts or drains, or an operator drained it."

// settle adds the time up to now. The caller holds mu.
func (s *slots) settle(now time.Time) {
	passed := now.Sub(s.since)
	s.since = now
	free := time.Duration(max(s.total-s.claimed, 0)) * passed
	s.handler += time.Duration(s.running) * passed
	s.around += time.Duration(s.claimed-s.running) * passed
	if s.working {
		s.idle += free
	} else {
		s.closed += free
	}
}

// change settles, and changes how many messages are in slots and how many handlers run.
func (s *slots) change(claimed, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(time.Now())
	s.claimed += claimed
	s.running += running
}

// work says whether the worker takes jobs from now on.
func (s *slots) work(working bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(time.Now())
	s.working = working
}

// Describe implements [prometheus.Collector].
func (s *slots) Describe(out chan<- *prometheus.Desc) { out <- s.desc }

// Collect implements [prometheus.Collector].
func (s *slots) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	s.settle(time.Now())
	times := map[string]time.Duration{"handler": s.handler, "around": s.around, "idle": s.idle, "closed": s.closed}
	s.mu.Unlock()
	for state, took := range times {
		out <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, took.Seconds(), state)
	}
}
