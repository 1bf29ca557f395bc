package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Platform are the metrics of scheduled events and of the drains that they cause.
type Platform struct {
	events           *prometheus.CounterVec
	unrecognised     prometheus.Counter
	acknowledgements *prometheus.CounterVec
	drains           *prometheus.HistogramVec
	polls            *prometheus.CounterVec
	sight            *sight
}

// drainBuckets are finest around the budgets of an eviction.
var drainBuckets = []float64{.05, .1, .25, .5, 1, 2, 5, 10, 20, 30, 60}

func newPlatform(w Words) Platform {
	p := Platform{
		events: counters("scheduled_events_total",
			"Scheduled events that named this VM, by the action of the worker. An event counts again with another action.", "type",
			"action"),
		unrecognised: counter("evictions_unrecognised_total",
			"Events that may stop or pause a VM of this group while this VM's name was not known. All jobs were saved, none drained. "+
				"Set --vm-name."),
		acknowledgements: byWord(w.Acknowledgements, "acknowledgements_total", "Scheduled events that the worker acknowledged, or tried to.",
			"result"),
		drains: histograms("drain_duration_seconds",
			"Time from the notice until no job was left, by the reason for the stop.", drainBuckets, "reason"),
		polls: byWord(w.PollResults, "metadata_polls_total", "Polls of the metadata service for scheduled events, by result.", "result"),
		sight: &sight{},
	}
	for _, reason := range w.DrainReasons {
		p.drains.WithLabelValues(reason)
	}
	return p
}

func (p *Platform) collectors() []prometheus.Collector {
	return []prometheus.Collector{p.sight, p.events, p.unrecognised, p.acknowledgements, p.drains, p.polls}
}

// Announced counts an event that names this VM.
func (p *Platform) Announced(kind, action string) { p.events.WithLabelValues(kind, action).Inc() }

// Unrecognised counts an event that may have been about this VM.
func (p *Platform) Unrecognised() { p.unrecognised.Inc() }

// Acknowledged counts an acknowledgement by its result.
func (p *Platform) Acknowledged(result string) { p.acknowledgements.WithLabelValues(result).Inc() }

// Drained records how long a finished drain took.
func (p *Platform) Drained(reason string, took time.Duration) {
	p.drains.WithLabelValues(reason).Observe(seconds(took))
}

// Polled counts a poll of the metadata service.
func (p *Platform) Polled(at time.Time, result string) {
	p.polls.WithLabelValues(result).Inc()
	if result == resultAnswered {
		p.sight.answered(at)
	}
}

// resultAnswered is the result of a poll that had a document.
const resultAnswered = "answered"

// Blind records that no poll has been answered since then or, with the zero time,
// that they are answered again.
func (p *Platform) Blind(since time.Time) { p.sight.blind(since) }
