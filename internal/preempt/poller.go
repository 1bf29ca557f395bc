package preempt

import (
	"context"
	"sync"
	"time"
)

// How long a poll may take, and how many at once. A second was seen to be too
// short for this service, five enough (aks-node-termination-handler#73).
const (
	pollTimeout = 5 * time.Second

	// patientTimeout is for the call that switches the service on: documented
	// to take up to two minutes.
	patientTimeout = 2*time.Minute + pollTimeout

	// maxInFlight is how many polls may wait for an answer at once: as many as
	// are sent within pollTimeout.
	maxInFlight = 5
)

// polled is how one poll ended: with a document or with an error.
type polled struct {
	number   int // polls count from 1, in the order of sending
	patient  bool
	document Document
	err      error
	at       time.Time // local
}

// poller sends polls, each in a goroutine of its own. Its methods belong to the
// goroutine of the loop.
type poller struct {
	client   *Client
	answers  chan polled // has room for all, so that no poll outlives its answer
	inFlight int
	patient  bool // a patient poll is under way
	running  sync.WaitGroup
}

func newPoller(c *Client) *poller {
	return &poller{client: c, answers: make(chan polled, maxInFlight)}
}

// free reports whether another poll may be sent: one that would wait for the
// budget behind its predecessor may not.
func (p *poller) free() bool { return p.inFlight < maxInFlight && !p.client.queued.any() }

// start sends poll number. While nothing is known from the service, one poll at
// a time is a patient one: it may be the one that switches the service on.
func (p *poller) start(ctx context.Context, number int, known bool) {
	patient := !known && !p.patient
	p.patient = p.patient || patient
	p.inFlight++
	timeout := pollTimeout
	if patient {
		timeout = patientTimeout
	}
	p.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		doc, err := p.client.Events(ctx)
		p.answers <- polled{number: number, patient: patient, document: doc, err: err, at: time.Now()}
	})
}

// ended notes that a poll's answer was taken.
func (p *poller) ended(a polled) {
	p.inFlight--
	if a.patient {
		p.patient = false
	}
}

// wait returns when no poll is under way. The context of all must have ended.
func (p *poller) wait() { p.running.Wait() }

// pollInterval is what the service's documentation recommends.
const pollInterval = time.Second

// Delays before a failed request is repeated. The first is short, since the
// usual cause is a passing one and an eviction leaves no time; the last is two
// polls, so that a service in trouble is not made worse.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// retryDelay returns how long to wait after the given number of failures in a
// row: firstRetry, then twice as long each time up to lastRetry. A throttled
// request waits for lastRetry at once, as more requests are what is wrong.
func retryDelay(failures int, throttled bool) time.Duration {
	if throttled {
		return lastRetry
	}
	delay := firstRetry
	for range failures - 1 {
		if delay *= 2; delay >= lastRetry {
			return lastRetry
		}
	}
	return delay
}

// pace says when the next poll is due. It is pure: time comes in as an argument.
type pace struct {
	next     time.Time
	number   int // of the newest poll sent
	failures int // in a row, of polls that were the newest when they failed
}

func (p *pace) due(now time.Time) bool { return !now.Before(p.next) }

// wait returns how long until a poll is due. One that is due but finds no room
// is sent when an answer makes room, so nothing has to wake up for it.
func (p *pace) wait(now time.Time) time.Duration {
	if p.due(now) {
		return pollTimeout
	}
	return p.next.Sub(now)
}

// sent notes a poll and returns its number. The next is due an interval later,
// answered or not.
func (p *pace) sent(now time.Time) int {
	p.number++
	p.next = now.Add(pollInterval)
	return p.number
}

// answered notes how a poll ended. Only the failure of the newest poll changes
// the pace: while an older one fails, a newer one is asking already.
func (p *pace) answered(a polled, good bool) {
	switch {
	case good:
		p.failures = 0
	case a.err != nil && a.number == p.number:
		p.failures++
		p.next = a.at.Add(retryDelay(p.failures, isThrottled(a.err)))
	}
}
