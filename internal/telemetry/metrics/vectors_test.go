package metrics

import (
	"math"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// TestNegativeValues: no duration or number that a clock or a counter made negative ends the
// worker or decreases a sum.
func TestNegativeValues(t *testing.T) {
	m := New(Config{})
	for _, took := range []time.Duration{-140, -time.Hour, math.MinInt64, time.Second, math.MaxInt64} {
		m.Observe(observe.Spent{Kind: "k", Effort: "redone", Took: took})
		m.Observe(observe.Waited{After: "put", For: took})
		m.Observe(observe.Committed{Kind: "k", SincePut: took, Ran: took, Interruptions: 0, Exits: 0})
		m.Observe(observe.Saved{Result: "saved", Bytes: int64(took), Took: took})
		m.Observe(observe.Drained{Reason: "evicted", Took: took})
		m.Called("blob", "PutBlob", "2xx", took, true, "no date")
		m.Observe(observe.QueueRead{Queue: "jobs", Messages: -1, Oldest: took})
		m.Observe(observe.OutputSent{Bytes: int64(took)})
		m.Observe(observe.InputsUsed{Result: "fetched", Files: int64(took), Bytes: int64(took)})
	}
	m.Observe(observe.Blind{Since: time.Now().Add(time.Hour)})
	m.Observe(observe.Blind{Since: time.Time{}})
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			for _, sum := range []float64{series.GetCounter().GetValue(), series.GetHistogram().GetSampleSum()} {
				if sum < 0 || math.IsNaN(sum) || math.IsInf(sum, 0) {
					t.Errorf("%s %v = %v", f.GetName(), series.GetLabel(), sum)
				}
			}
		}
	}
}
