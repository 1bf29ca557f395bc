package intake

import (
	"cmp"
	"math"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/retry"
)

// Pressure counts the calls that storage refused because they came too fast, with
// their retries. Its methods may be called from several goroutines. A nil Pressure
// counts nothing.
type Pressure struct {
	mu      sync.Mutex
	account uint64 // calls that are not about a queue
	queues  map[string]uint64
}

// Refused counts a call for a queue that was refused. The name is empty for
// a call that is not about a queue: then the limit is the account's, and concerns all of
// its queues.
func (p *Pressure) Refused(queue string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if queue == "" {
		p.account++
		return
	}
	if p.queues == nil {
		p.queues = map[string]uint64{}
	}
	p.queues[queue]++
}

// Count returns how many calls were refused that concern a queue.
func (p *Pressure) Count(queue string) uint64 {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.account + p.queues[queue]
}

const (
	// queueLimit is how many jobs a second one queue lets through: Azure's limit is 2,000
	// messages a second, and a job claims one and deletes one.
	queueLimit = 1000

	// unknownFleet is how many workers are assumed until the heartbeats were listed.
	unknownFleet = 8

	// leastRate is the lowest rate, in messages a second.
	leastRate = 4

	// reaction is how long a lower rate takes to show: refusals within it are due
	// to the rate before. Storage counts by the second.
	reaction = time.Second

	// The first refusal halves the rate. Each later one cuts it by leastCut to mostCut,
	// at random, so that workers do not fall into step.
	firstCut = 0.5
	leastCut = 0.05
	mostCut  = 0.15

	// search is the growth of the rate for each claimed message while no limit is known:
	// the rate doubles in a second. Afterwards it grows by a second's increase × the mean
	// of the worker's share of queueLimit and the rate. The mean is geometric: workers with a
	// lower rate catch up, and few calls are refused where the limit is lower than queueLimit.
	search   = 0.7
	increase = 0.02

	// remembered is how long a limit is known after the last refusal.
	remembered = 10 * time.Minute

	// claimSlack and startSlack are how late a claim and a start may be without costing
	// rate.
	claimSlack = 50 * time.Millisecond
	startSlack = 5 * time.Millisecond

	// startAhead is how much faster than they are claimed messages are started, so that
	// they do not pile up.
	startAhead = 1.2
)

// Pace limits how fast messages are claimed from a queue, by additive increase and
// multiplicative decrease as in TCP. It begins with the worker's share of the queue's limit.
// The rate grows only by claims that waited for it, so that an idle worker keeps its rate.
// All workers of a queue meet the same refusals, so that their rates come near to each other.
// The zero value is ready to use.
type Pace struct {
	Jitter retry.Jitter

	workers int       // that claim from the queue; 0 if unknown
	rate    float64   // messages a second; 0 before the first claim
	refused uint64    // calls
	cut     time.Time // when the rate was cut last; zero while no limit is known
	next    time.Time // when the next claim may be sent
	start   time.Time // when the next message may be started
}

// SetWorkers sets how many workers claim from the queue, 0 if that is unknown.
func (p *Pace) SetWorkers(n int) {
	if n == 0 || n == p.workers {
		return
	}
	p.workers = n
	if p.cut.IsZero() {
		p.rate = p.share()
	}
	if n == 1 {
		p.next, p.start = time.Time{}, time.Time{}
	}
}

// share returns the worker's share of the queue's limit.
func (p *Pace) share() float64 {
	return max(queueLimit/float64(cmp.Or(p.workers, unknownFleet)), leastRate)
}

// Observe takes how many calls have been refused until now.
func (p *Pace) Observe(now time.Time, refused uint64) {
	if refused != p.refused {
		p.refused = refused
		p.lower(now)
	}
}

// Refused records a claim that was refused, also where nothing counts the pressure, and
// leaves storage alone for a moment.
func (p *Pace) Refused(now time.Time) {
	p.lower(now)
	p.next = later(p.next, now.Add(reaction/4))
}

// lower cuts the rate because calls were refused.
func (p *Pace) lower(now time.Time) {
	cut := firstCut
	if !p.cut.IsZero() {
		if now.Sub(p.cut) < reaction {
			return
		}
		cut = leastCut + (mostCut-leastCut)*p.Jitter.Spread(time.Second).Seconds()
	}
	p.rate, p.cut = max(p.Rate()*(1-cut), leastRate), now
}

// Rate returns how many messages a second may be claimed.
func (p *Pace) Rate() float64 { return cmp.Or(p.rate, p.share()) }

// Due returns when the next claim may be sent; it may be past.
func (p *Pace) Due() time.Time { return p.next }

// Sent records a claim for n messages.
func (p *Pace) Sent(now time.Time, n int) {
	if now.Sub(p.cut) > remembered {
		p.cut = time.Time{}
	}
	rate, earliest := p.Rate(), now.Add(-p.slack(claimSlack))
	if p.next.After(earliest) { // the pace held it up
		if p.cut.IsZero() {
			rate += search * float64(n)
		} else {
			rate += increase * math.Sqrt(p.share()*rate) * float64(n) / rate
		}
	}
	p.rate = rate
	p.next = later(p.next, earliest).Add(seconds(float64(n) / rate))
}

// slack returns how late a call may be without costing rate. A worker alone may claim at once
// what its queue lets through in a second, as long as no limit is known.
func (p *Pace) slack(usual time.Duration) time.Duration {
	if p.workers == 1 && p.cut.IsZero() {
		return time.Second
	}
	return usual
}

// StartDue returns when the next claimed message may be started; it may be past. Jobs
// that started together would end together, and their calls come in a burst.
func (p *Pace) StartDue() time.Time { return p.start }

// Started records that a message was started at now.
func (p *Pace) Started(now time.Time) {
	p.start = later(p.start, now.Add(-p.slack(startSlack))).Add(seconds(1 / (p.Rate() * startAhead)))
}

// Got records that a claim for n messages brought some of them. The other messages
// may be claimed again; the call itself counts as one message.
func (p *Pace) Got(n, got int) {
	if got < n {
		p.next = p.next.Add(-seconds(float64(n-max(got, 1)) / p.Rate()))
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
