package preempt

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/retry"
)

// How long a poll may take, and how many may be in flight. A timeout of one second
// has proved too short for this service, five seconds long enough
// (aks-node-termination-handler#73).
const (
	pollTimeout = 5 * time.Second

	// patientTimeout is for polls while no answer comes in time. It is as long as the
	// call that switches the service on: documented to take up to two minutes.
	patientTimeout = 2*time.Minute + pollTimeout

	// maxInFlight is how many polls may be in flight: as many as are sent within
	// pollTimeout. Patient polls, one for each version, come on top, so that they take
	// no other poll's place.
	maxInFlight = 5
	maxPatient  = 2
)

// request is a poll to send.
type request struct {
	number   int    // polls count from 1, in the order of sending
	version  string // to ask in
	doubtful bool   // the version in use was in doubt
	blind    bool   // no answer came in time
}

// polled is the outcome of one poll: a document or an error.
type polled struct {
	number   int
	version  string // that was asked last
	doubtful bool
	patient  string // the version of a patient poll, otherwise empty
	document Document
	err      error
	at       time.Time // local
	took     time.Duration
}

// isPrompt reports whether the poll has an answer that came in the time of an ordinary
// poll. A later answer shows the announced events, but not that the watcher sees in time.
func (a polled) isPrompt() bool { return a.err == nil && a.took < pollTimeout }

// poller sends polls, each in a goroutine of its own. Only the loop's goroutine calls
// its methods.
type poller struct {
	client   *Client
	answers  chan polled // has room for all, so that no poll outlives its answer
	inFlight int         // polls that are not patient
	patient  [maxPatient]string
	running  sync.WaitGroup
}

func newPoller(c *Client) *poller {
	return &poller{client: c, answers: make(chan polled, maxInFlight+maxPatient)}
}

// free reports whether another poll may be sent: not while one waits for the budget.
func (p *poller) free() bool { return p.inFlight < maxInFlight && !p.client.queued.any() }

// hasRoom reports whether an additional poll leaves a place for the regular one.
func (p *poller) hasRoom() bool { return p.inFlight < maxInFlight-1 }

// start sends a poll. While no answer comes in time, one poll at a time in each version is
// a patient one: the service may be slow, or take its time to switch events on.
func (p *poller) start(ctx context.Context, r request) {
	timeout, patient := pollTimeout, ""
	if r.blind && p.addPatient(r.version) {
		timeout, patient = patientTimeout, r.version
	} else {
		p.inFlight++
	}
	sent := time.Now()
	p.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		doc, version, err := p.client.events(ctx, r.version)
		at := time.Now()
		p.answers <- polled{
			number: r.number, version: version, doubtful: r.doubtful, patient: patient,
			document: doc, err: err, at: at, took: at.Sub(sent),
		}
	})
}

// addPatient reports whether no patient poll in that version is in flight, which one is
// then.
func (p *poller) addPatient(version string) bool {
	free := slices.Index(p.patient[:], "")
	if free < 0 || slices.Contains(p.patient[:], version) {
		return false
	}
	p.patient[free] = version
	return true
}

// received records that the loop has read a poll's answer.
func (p *poller) received(a polled) {
	if a.patient == "" {
		p.inFlight--
		return
	}
	p.patient[slices.Index(p.patient[:], a.patient)] = ""
}

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

// untilDue returns how long until a poll is due. A due poll that cannot be sent yet is
// sent after the next answer, so nothing has to wake up for it.
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
