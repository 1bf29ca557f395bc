package worker

import (
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

// Bounds of the claim loop.
const (
	// maxBuffered is how long a claimed message may wait for a slot.
	maxBuffered = 10 * time.Second

	// prefetchTime is how much work the buffer should hold, in time: enough to
	// make full batches of short jobs, far less than maxBuffered.
	prefetchTime = 2 * time.Second

	firstPoll   = 250 * time.Millisecond
	longestPoll = 8 * time.Second
)

// prefetch returns how many messages to claim: as many as there are free slots,
// and of short jobs as many more as the slots will finish within prefetchAhead.
// mean is the usual duration of a job, 0 when it is not known.
func prefetch(slots, free int, mean time.Duration) int {
	buffer := 0
	if mean > 0 {
		buffer = int(min(prefetchTime*time.Duration(slots)/mean, queue.MaxClaim))
	}
	return min(free+buffer, queue.MaxClaim)
}

// pollDelay returns how long to wait before the queue is asked again, after that
// many claims in a row that gave nothing: twice as long each time, up to
// longestPoll, give or take a quarter, so that a fleet does not ask in step.
func pollDelay(empty int) time.Duration {
	if empty == 0 {
		return 0
	}
	delay := longestPoll
	if shift := empty - 1; shift < 10 {
		delay = min(firstPoll<<shift, longestPoll)
	}
	return jittered(delay)
}

// movingAverage is a moving average of how long jobs take. It belongs to one goroutine.
type movingAverage struct{ mean time.Duration }

// What stands for how long a job took that was not run, which says nothing:
// notRun for one that gave way, keptOff for one whose kind rests here.
const (
	notRun     time.Duration = -1
	skippedJob time.Duration = -2
)

func (u *movingAverage) add(d time.Duration) {
	if d < 0 {
		return
	}
	if d = max(d, time.Microsecond); u.mean == 0 {
		u.mean = d
		return
	}
	u.mean += (d - u.mean) / 8
}
