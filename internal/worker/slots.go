package worker

import (
	"time"

	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/retry"
)

// slots are the places of a worker for jobs, and the lessons from the jobs that ended in
// them: how long jobs take, and how many in a row were left to others.
type slots struct {
	all     int
	free    int
	ended   chan ended
	average delivery.MovingAverage // of how long jobs take
	lastEnd time.Time              // of a job

	// skipped counts the jobs in a row that this worker left to others because they
	// fail on it, or others have slots for them. Nothing is claimed before restUntil because of them.
	skipped   int
	restUntil time.Time

	jitter retry.Jitter
}

// ended is the end of a delivery.
type ended struct {
	result delivery.Result
	took   time.Duration
}

func newSlots(n int, jitter retry.Jitter) slots {
	return slots{all: n, free: n, ended: make(chan ended, n), jitter: jitter}
}

// learn frees the slot of a delivery that ended, and learns from it how long jobs take,
// and how many in a row were skipped. While nothing else comes, claims get as rare as
// claims of an empty queue: they only hide messages from others.
func (s *slots) learn(e ended, now time.Time) {
	s.free++
	switch e.result {
	case delivery.Skipped:
		s.skipped++
		s.restUntil = now.Add(s.jitter.Vary(pollDelay(s.skipped)))
	case delivery.Ran:
		s.average.Add(e.took)
		s.lastEnd = now
		s.skipped, s.restUntil = 0, time.Time{}
	case delivery.NotRun, delivery.Unfit: // say nothing
	}
}
