package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
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

func newPlatform(r registry) Platform {
	p := Platform{
		events: r.counters("scheduled_events_total",
			"Scheduled events that named this VM, by the action of the worker. An event counts again with another action.", "type",
			"action"),
		unrecognised: r.counter("evictions_unrecognised_total",
			"Events that may stop or pause a VM of this group while this VM's name was not known. All jobs were saved, none drained. "+
				"Set --vm-name."),
		acknowledgements: r.byWord(observe.Acknowledgements, "acknowledgements_total",
			"Scheduled events that the worker acknowledged, or tried to.",
			"result"),
		drains: r.histograms("drain_duration_seconds",
			"Time from the notice until no job was left, by the reason for the stop.", drainBuckets, "reason"),
		polls: r.counters("metadata_polls_total", "Polls of the metadata service for scheduled events, by result.", "result"),
		sight: add(r, &sight{}),
	}
	for _, reason := range observe.DrainReasons {
		p.drains.WithLabelValues(reason)
	}
	for _, result := range preempt.PollResults() {
		p.polls.WithLabelValues(string(result))
	}
	return p
}

func (p *Platform) observe(e observe.Event) {
	switch e := e.(type) {
	case observe.Announced:
		p.events.WithLabelValues(e.Type, e.Action).Inc()
	case observe.Unrecognised:
		p.unrecognised.Inc()
	case observe.Acknowledged:
		p.acknowledgements.WithLabelValues(e.Result).Inc()
	case observe.Drained:
		p.drains.WithLabelValues(e.Reason).Observe(seconds(e.Took))
	case observe.Polled:
		p.polls.WithLabelValues(string(e.Result)).Inc()
		if e.Result == preempt.PollAnswered {
			p.sight.answered(e.At)
		}
	case observe.Blind:
		p.sight.blind(e.Since)
	}
}
