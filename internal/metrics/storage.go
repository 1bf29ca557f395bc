package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Storage are the metrics of calls to the storage account.
type Storage struct {
	calls    *prometheus.CounterVec
	callTime *prometheus.HistogramVec
}

// callBuckets reach from a call within the region to one that is given up.
var callBuckets = []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

func newStorage() Storage {
	return Storage{
		calls: counterVec("storage_calls_total",
			"Calls to the storage account, each retry counted. Conflicts (4xx) are part of fencing; throttled ones ask for fewer calls.",
			"service", "operation", "status"),
		callTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "storage_call_duration_seconds", Buckets: callBuckets,
			Help: "Time of calls to the storage account, each retry counted, until the head of the response.",
		}, []string{"service", "operation"}),
	}
}

func (s *Storage) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.calls, s.callTime}
}

// Called counts one call to the storage account.
func (s *Storage) Called(service, operation, status string, took time.Duration) {
	s.calls.WithLabelValues(service, operation, status).Inc()
	s.callTime.WithLabelValues(service, operation).Observe(took.Seconds())
}
