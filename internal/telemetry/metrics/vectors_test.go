package metrics

import (
	"math"
	"testing"
	"time"
)

// TestNegativeValues: no duration or number that a clock or a counter made negative ends the
// worker or decreases a sum.
func TestNegativeValues(t *testing.T) {
	m := New(Config{Words: testWords})
	for _, took := range []time.Duration{-140, -time.Hour, math.MinInt64, time.Second, math.MaxInt64} {
		m.Spent("k", "redone", took)
		m.Waited("put", took)
		m.Committed("k", took, took, 0, 0)
		m.Saved("saved", int64(took), took)
		m.Drained("evicted", took)
		m.Called("blob", "PutBlob", "2xx", took, true, "no date")
		m.QueueRead("jobs", -1, took)
		m.OutputSent(int64(took))
		m.CountInputs("fetched", int64(took), int64(took))
	}
	m.Blind(time.Now().Add(time.Hour))
	m.Blind(time.Time{})
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
