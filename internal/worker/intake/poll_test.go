package intake

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/retry"
)

// TestInterval: a worker polls each of its queues once a second, and less often the more
// workers poll it too.
func TestInterval(t *testing.T) {
	for _, tt := range []struct {
		fleet, queues int
		want          time.Duration
	}{
		{0, 1, time.Second}, // unknown
		{1, 1, time.Second},
		{5, 1, time.Second},
		{10, 1, 2 * time.Second},
		{64, 1, LongestPoll},
		{10_000, 1, LongestPoll},
		{1, 2, time.Second},
		{5, 4, time.Second},
		{10, 2, 2 * time.Second},
		{64, 2, 64 * time.Second / fleetPolls},
		{10_000, 2, 2 * LongestPoll},
	} {
		if got := (Polling{Queues: tt.queues, Fleet: tt.fleet}).Interval(); got != tt.want {
			t.Errorf("Interval with %d workers and %d queues = %s, want %s", tt.fleet, tt.queues, got, tt.want)
		}
	}
}

// TestPollDelay: after the first empty poll comes another one soon, then one at a random
// time of the interval, then one in each interval.
func TestPollDelay(t *testing.T) {
	least := retry.Jitter{Random: func(time.Duration) time.Duration { return 0 }}
	most := retry.Jitter{Random: func(n time.Duration) time.Duration { return n - 1 }}
	const ms = time.Millisecond
	for _, tt := range []struct {
		empty         int
		polling       Polling
		shortest, end time.Duration
	}{
		{0, Polling{Queues: 1}, 0, 0},
		{1, Polling{Queues: 1}, 187500 * time.Microsecond, 312500 * time.Microsecond},
		{1, Polling{Queues: 2}, 187500 * time.Microsecond, 312500 * time.Microsecond},
		{3, Polling{Queues: 4}, 875 * ms, 1125 * ms},
		{2, Polling{Queues: 1}, 0, time.Second},
		{2, Polling{Queues: 1, Fleet: 64}, 0, LongestPoll},
		{3, Polling{Queues: 1}, 875 * ms, 1125 * ms},
		{1000, Polling{Queues: 1, Fleet: 64}, 7 * time.Second, 9 * time.Second},
	} {
		if got := tt.polling.Delay(tt.empty, least); got != tt.shortest {
			t.Errorf("shortest Delay(%d) of %+v = %s, want %s", tt.empty, tt.polling, got, tt.shortest)
		}
		if got := tt.polling.Delay(tt.empty, most); got != max(tt.end-1, 0) {
			t.Errorf("longest Delay(%d) of %+v = %s, want just less than %s", tt.empty, tt.polling, got, tt.end)
		}
	}
}
