package evictions

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/telemetry/metrics"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// TestAbandonedReporters: handlers that ignore their stop and keep reporting are
// abandoned. Their jobs and their neighbours' are released with their states, and the
// metrics of the worker stay in order. In virtual time all readings of the clock in a
// drain are equal, so the clock is the real one.
func TestAbandonedReporters(t *testing.T) {
	for name, stop := range map[string]func(*rig.Bed, *rig.Process){
		"terminated": func(_ *rig.Bed, p *rig.Process) { p.Term() },
		"evicted":    func(b *rig.Bed, _ *rig.Process) { b.Announce("Preempt", rig.In(6*time.Second)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig.RunInRealTime(t, func(t *testing.T, b *rig.Bed) { abandonReporters(t, b, stop) })
		})
	}
}

func abandonReporters(t *testing.T, b *rig.Bed, stop func(*rig.Bed, *rig.Process)) {
	t.Helper()
	const each = 8
	restless, good := rig.NewRestless(), &rig.SteadyReporter{}
	var ids []string
	for i := range each {
		for _, kind := range []string{"restless", "good"} {
			ids = append(ids, kind+"-"+string(rune('a'+i)))
			b.Put(ids[len(ids)-1], kind, "")
		}
	}
	m := metrics.New(metrics.Config{Slots: len(ids)})
	p := b.Start("vm_0", job.Kinds{"restless": restless, "good": good}, func(c *worker.Config) {
		c.Observe, c.Concurrency, c.DrainBudget = m.Observe, len(ids), 4*time.Second
	})
	b.WaitFor("all jobs running", 20*time.Second, func() bool {
		return restless.Running.Load() == each && good.Running.Load() == each
	})
	stop(b, p)
	b.WaitFor("the end of the drain", 20*time.Second, func() bool {
		return rig.IsClosed(p.Ended) || p.Drained() || p.Position().State == lifecycle.Stopped
	})
	for _, id := range ids {
		if r := b.Record(id); r.Status != checkpoint.Open || !r.HasState() || r.Failures != 0 {
			t.Errorf("%s: %s, state %t, %d failures, want open with its state and 0", id, r.Status, r.HasState(), r.Failures)
		}
	}
	checkSpent(t, m)
	restless.Finish()
	p.Stop()
}

// checkSpent checks the time of handlers: the time of saved states is not lost.
func checkSpent(t *testing.T, m *metrics.Metrics) {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "spotworker_handler_seconds_total" {
			continue
		}
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				if l.GetName() == "outcome" {
					sums[l.GetValue()] += series.GetCounter().GetValue()
				}
			}
		}
	}
	if got := sums["handed_over"]; got <= 0 || math.IsNaN(got) {
		t.Errorf("time of handlers handed over = %v s, want more than 0 (%s)", got, strings.Join(observe.Efforts, ", "))
	}
}
