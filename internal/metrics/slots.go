package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spotworker/spotworker/internal/activity"
)

// slots shows what the worker's slots did.
type slots struct {
	*activity.Slots
	desc *prometheus.Desc
}

func newSlots(total int) *slots {
	return &slots{Slots: activity.NewSlots(total), desc: prometheus.NewDesc(namespace+"_slot_seconds_total", slotsHelp, []string{"state"}, nil)}
}

const slotsHelp = "Time of all job slots by what they did: a handler ran; a message was claimed and no handler ran (around), mostly for calls to storage; " +
	"idle, while the worker takes jobs; or closed, while it starts or drains, or an operator drained it."

// Describe implements [prometheus.Collector].
func (s *slots) Describe(out chan<- *prometheus.Desc) { out <- s.desc }

// Collect implements [prometheus.Collector].
func (s *slots) Collect(out chan<- prometheus.Metric) {
	t := s.Times()
	for state, took := range map[string]time.Duration{"handler": t.Handler, "around": t.Around, "idle": t.Idle, "closed": t.Closed} {
		out <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, took.Seconds(), state)
	}
}
