package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sight measures for how long the metadata service has not answered.
type sight struct {
	mu        sync.Mutex
	answer    time.Time // of the last poll that was answered; zero before the first
	blindness lasting
}

var (
	lastAnswerDesc = prometheus.NewDesc(namespace+"_metadata_last_answer_timestamp_seconds",
		"When the metadata service last answered, by this machine's clock. Absent before the first answer.", nil, nil)
	blindDesc = prometheus.NewDesc(namespace+"_metadata_blind_seconds_total",
		"Time without an answer of the metadata service, from 5 s on. An eviction then comes without notice.", nil,
		nil)
)

// Describe implements [prometheus.Collector].
func (s *sight) Describe(out chan<- *prometheus.Desc) {
	out <- lastAnswerDesc
	out <- blindDesc
}

func (s *sight) answered(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = at
}

// blind begins or ends a time of blindness.
func (s *sight) blind(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since.IsZero() {
		s.blindness.end(time.Now()) // in the lock: not before the last collection
	} else {
		s.blindness.begin(since)
	}
}

// Collect implements [prometheus.Collector].
func (s *sight) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out <- prometheus.MustNewConstMetric(blindDesc, prometheus.CounterValue, s.blindness.seconds(time.Now()))
	if !s.answer.IsZero() {
		seconds := float64(s.answer.UnixMilli()) / 1e3
		out <- prometheus.MustNewConstMetric(lastAnswerDesc, prometheus.GaugeValue, seconds)
	}
}
