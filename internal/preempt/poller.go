package preempt

import (
	"context"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/retry"
)

// How long a poll may take, and how many may be in flight. A timeout of one second
// has proved too short for this service, five seconds long enough
// (aks-node-termination-handler#73).
const (
	pollTimeout = 5 * time.Second

	// activationTimeout is for the call that switches the service on: documented
	// to take up to two minutes.
	activationTimeout = 2*time.Minute + pollTimeout

	// maxInFlight is how many polls may be in flight: as many as are sent within
	// pollTimeout.
	maxInFlight = 5
)

// polled is the outcome of one poll: a document or an error.
type polled struct {
	number     int // polls count from 1, in the order of sending
	activating bool
	document   Document
	err        error
	at         time.Time // local
}

// poller sends polls, each in a goroutine of its own. Only the loop's goroutine calls
// its methods.
type poller struct {
	client     *Client
	answers    chan polled // has room for all, so that no poll outlives its answer
	inFlight   int
	activating bool // a patient poll is under way
	running    sync.WaitGroup
}

func newPoller(c *Client) *poller {
	return &poller{client: c, answers: make(chan polled, maxInFlight)}
}

// free reports whether another poll may be sent: not while one waits for the budget.
func (p *poller) free() bool { return p.inFlight < maxInFlight && !p.client.queued.any() }

// start sends poll number. While nothing is known from the service, one poll at
// a time is a patient one: it may be the one that switches the service on.
func (p *poller) start(ctx context.Context, number int, known bool) {
	patient := !known && !p.activating
	p.activating = p.activating || patient
	p.inFlight++
	timeout := pollTimeout
	if patient {
		timeout = activationTimeout
	}
	p.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		doc, err := p.client.Events(ctx)
		p.answers <- polled{number: number, activating: patient, document: doc, err: err, at: time.Now()}
	})
}

// received records that the loop has read a poll's answer.
func (p *poller) received(a polled) {
	p.inFlight--
	if a.activating {
		p.activating = false
	}
}

// wait returns when no poll is in flight. Their context must have ended.
func (p *poller) wait() { p.running.Wait() }

// pollInterval is the interval that the service's documentation recommends.
const pollInterval = time.Second

// Delays before a failed request is repeated. The first is short, since most errors
// are transient and an eviction leaves no time; the longest is two polls, so as not
// to overload a service in trouble.
const (
	firstRetry   = 250 * time.Millisecond
	longestRetry = 2 * time.Second
)

// retryDelay returns how long to wait after that many failures in a row. After a
// throttled request it is longestRetry at once, because there were too many requests.
func retryDelay(failures int, throttled bool) time.Duration {
	if throttled {
		return longestRetry
	}
	return retry.Backoff{First: firstRetry, Max: longestRetry}.Delay(failures)
}

// schedule decides when the next poll is due. It is pure: time is an argument.
type schedule struct {
	next     time.Time
	number   int // of the newest poll sent
	failures int // in a row, of polls that were the newest when they failed
}

func (s *schedule) due(now time.Time) bool { return !now.Before(s.next) }

// untilDue returns how long until a poll is due. One that is due and cannot be sent
// yet is sent after the next answer, so nothing has to wake up for it.
func (s *schedule) untilDue(now time.Time) time.Duration {
	if s.due(now) {
		return pollTimeout
	}
	return s.next.Sub(now)
}

// send records that a poll is sent and returns its number. The next one is due an
// interval later, with or without an answer.
func (s *schedule) send(now time.Time) int {
	s.number++
	s.next = now.Add(pollInterval)
	return s.number
}

// answered records how a poll ended. Only the failure of the newest poll changes the
// schedule: after an older one a newer is in flight already.
func (s *schedule) answered(a polled, good bool) {
	switch {
	case good:
		s.failures = 0
	case a.err != nil && a.number == s.number:
		s.failures++
		s.next = a.at.Add(retryDelay(s.failures, isThrottled(a.err)))
	}
}
