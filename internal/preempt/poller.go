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
