package intake

import (
	"time"

	"github.com/spotworker/spotworker/internal/retry"
)

// MostInRow is how many claims in a row are from the queue First while another queue is due: of four
// claims one is left to the others.
const MostInRow = 3

const (
	// PollEvery is the time between two polls of one queue by a worker without work,
	// as long as the fleet is small.
	PollEvery = time.Second

	// LongestPoll is the longest time between two polls of one queue, for each queue
	// that the worker takes from, however large the fleet is.
	LongestPoll = 8 * time.Second

	// fleetPolls is how many polls a second of one queue a fleet makes together,
	// unless it has fewer workers. Workers do not know of each other's polls, so it
	// takes five at random times for one to come within 1.2 s almost always.
	fleetPolls = 5

	// firstPoll is the wait after the first poll that finds a queue empty: where jobs
	// come all the time, the next one is near.
	firstPoll = 250 * time.Millisecond
)

// Polling holds the facts that decide how often a worker without work polls one queue.
type Polling struct {
	Queues int // that it takes from
	Fleet  int // workers without a job that poll the queue, this one included; 0 if unknown
}

// Interval returns the time between two polls.
func (p Polling) Interval() time.Duration {
	every := max(time.Duration(p.Fleet)*time.Second/fleetPolls, PollEvery)
	return min(every, LongestPoll*time.Duration(p.Queues))
}

// Delay returns how long to wait after so many polls in a row that found the queue
// empty. The second wait is random within the whole interval: workers that found the
// queue empty at the same moment, as at the end of a backlog, must not all wait for the
// same time. Later ones vary by an eighth, so that they do not fall into step, and no job
// waits much longer than the interval.
func (p Polling) Delay(empty int, jitter retry.Jitter) time.Duration {
	switch {
	case empty < 1:
		return 0
	case empty == 1:
		return jitter.Vary(firstPoll)
	case empty == 2:
		return jitter.Spread(p.Interval())
	default:
		every := p.Interval()
		return every - every/8 + jitter.Spread(every/4)
	}
}
