package worker

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPrefetch(t *testing.T) {
	tests := []struct {
		slots, free int
		mean        time.Duration
		want        int
	}{
		{4, 4, 0, 4},                      // nothing known: only what can be started
		{4, 1, time.Hour, 1},              // long jobs: no buffer
		{4, 1, 8 * time.Second, 2},        // 4 slots finish one in 2 s
		{2, 1, 10 * time.Millisecond, 32}, // short jobs: a full batch
		{1024, 1024, 0, 32},               // the service's limit
		{1, 1, 1, 32},
	}
	for _, tt := range tests {
		if got := prefetch(tt.slots, tt.free, tt.mean); got != tt.want {
			t.Errorf("prefetch(%d, %d, %s) = %d, want %d", tt.slots, tt.free, tt.mean, got, tt.want)
		}
	}
}

func TestPollDelay(t *testing.T) {
	if got := pollDelay(0); got != 0 {
		t.Errorf("pollDelay(0) = %s, want 0", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		empty := rapid.IntRange(1, 1000).Draw(t, "empty")
		nominal := min(pollDelays.First<<min(empty-1, 10), longestPoll)
		if got := pollDelay(empty); got != nominal {
			t.Fatalf("pollDelay(%d) = %s, want %s", empty, got, nominal)
		}
	})
}
