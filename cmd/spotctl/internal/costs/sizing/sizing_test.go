package sizing

import (
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestByHand: figures that docs/costs.md calculates.
func TestByHand(t *testing.T) {
	// 100 jobs/s of 1 s: 2 + 1/32 calls and the put.
	s := For(Load{JobsPerSecond: 100, Seconds: 1, Slots: 16, Rate: 0.05, Boot: 3 * time.Minute})
	if s.VMs != 7 || s.Queues != 1 || s.Deployments != 1 || s.Calls != 3+1/32.0 || s.Interval != 0 || s.Uses[0].Name != "messages of a queue" ||
		s.Uses[0].Share != 0.05 {
		t.Errorf("short jobs need %+v", s)
	}
	// 200 jobs/s of 10 min with 8 MiB: τ is 2·0.109 s·72000 s under the root, 125 s; four
	// saves of two calls, 60 renewals: 12,200 messages, 14,206 calls and 6.7 GB a second.
	s = For(Load{JobsPerSecond: 200, Seconds: 600, StateBytes: 8 << 20, Slots: 8, Rate: 0.05})
	if s.Queues != 7 || s.Calls != 71+1/32.0 || s.Deployments != 3 || s.Interval.Round(time.Second) != 125*time.Second || s.VMs != 15033 {
		t.Errorf("long jobs need %+v", s)
	}
	vms, storage := s.Cost(0.02, 0.005)
	if math.Abs(vms-15033*730*0.02) > 1 || math.Abs(storage-200*730*3600*s.Calls/10000*0.005) > 1 {
		t.Errorf("a month costs %.0f and %.0f", vms, storage)
	}
}

func TestBottlenecks(t *testing.T) {
	for want, l := range map[string]Load{
		"messages of a queue":         {JobsPerSecond: 3000, Seconds: 0.1, Slots: 1, Rate: 0.05},
		"bytes written to an account": {JobsPerSecond: 10, Seconds: 3600, StateBytes: 1 << 30, Slots: 1, Rate: 0.05},
	} {
		if s := For(l); s.Uses[0].Name != want || s.Uses[0].Share < 1 {
			t.Errorf("%+v has the bottleneck %+v, want %s", l, s.Uses, want)
		}
	}
	if s := For(Load{JobsPerSecond: 1, Seconds: 1, Slots: 1, Rate: 1, Boot: 2 * time.Hour}); s.VMs != 0 || s.Useful > 0 {
		t.Errorf("VMs that boot for longer than they live: %+v", s)
	}
}
