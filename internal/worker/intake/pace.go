package intake

import (
	"math"
	"sync"
	"time"
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

// Bounds of a [Pace].
const (
	// reaction is how long a lower rate takes to show: refusals within it are due
	// to the rate before. Storage counts by the second.
	reaction = time.Second

	// Refusals cut the rate by the share of its messages that they are, which is never
	// less than leastCut nor more than mostCut. Refusals again within an echo of a cut
	// show that it was too small: the next is at least againCut.
	leastCut = 0.07
	againCut = 0.12
	mostCut  = 0.5
	echo     = 5 * reaction / 2

	// settling is the share of a cut by which the rate settles below the refused rate.
	settling = 0.43

	// growth is how fast the rate comes back to there, as the coefficient of a cubic: in
	// 13 s for 1,000 messages a second and in 6 s for 125, so that slower workers catch
	// up. It grows on, slowly at first.
	growth = 0.02

	// Where no limit is known, or was not met for forgetting, a worker that begins with a
	// backlog claims at rampFrom messages a second, and at rampGrowth times as many each
	// second until it has no limit after rampFor. So few calls are refused when a fleet
	// begins together, and all of its workers learn the same limit.
	forgetting = time.Minute
	rampFrom   = 100
	rampGrowth = 8
	rampFor    = 3 * time.Second

	// The first refusals do not tell the limit. The rate after them grows as a square, by
	// search of the limit with time in seconds, until calls are refused that are no repeats
	// of the first ones. It starts at searchFrom messages a second at most where the worker
	// did not just begin, so that no worker keeps a rate that it was the first to get.
	searchFrom = 100
	search     = 0.01

	// leastRate is the lowest rate, in messages a second.
	leastRate = 4

	// burst is how late a claim may be without costing rate.
	burst = 50 * time.Millisecond

	// startAhead is how much faster than they are claimed messages are started, so that
	// they do not pile up, and startBurst how late a start may be without costing any. A
	// worker that begins starts them faster: few are refused then.
	startAhead = 1.2
	rampAhead  = 4.0
	startBurst = 5 * time.Millisecond
)

// Pace limits how fast messages are claimed from a queue, by additive increase and
// multiplicative decrease: a refusal lowers the rate, which then grows again, fast up
// to the refused rate and slowly beyond (as in TCP CUBIC, RFC 9438). All workers of a
// queue meet the same refusals, so that their rates come near to each other. The zero
// value has no limit; the first refusal sets one.
type Pace struct {
	seen      uint64    // refusals
	eased     time.Time // when the rate was lowered last; zero for never
	refused   float64   // refusals since then, up to a reaction later
	limit     float64   // messages a second before that
	least     float64   // of the cut
	met       time.Time // when a limit was met where none was known
	searching bool      // for the limit
	from      float64   // the highest rate that the search starts at
	began     time.Time // when the first claim of a backlog was sent; zero before it
	next      time.Time // when the next claim may be sent
	start     time.Time // when the next message may be started

	second         time.Time // when the current second of the counts began
	now, lastCount float64   // messages claimed in it, and in the one before
}

// Observe takes how many calls have been refused until now.
func (p *Pace) Observe(now time.Time, refused uint64) {
	if refused != p.seen {
		p.ease(now, refused-p.seen)
		p.seen = refused
	}
}

// Refused records a claim that was refused, also where nothing counts the pressure, and
// leaves storage alone for a moment.
func (p *Pace) Refused(now time.Time) {
	p.ease(now, 0)
	p.next = later(p.next, now.Add(reaction/4))
}

// ease lowers the rate because calls were refused, so many since the last time.
func (p *Pace) ease(now time.Time, refused uint64) {
	since := now.Sub(p.eased)
	if p.eased.IsZero() || since >= reaction {
		if !p.knowsLimit(now) {
			p.limit, p.met, p.from = max(p.goodput(now), leastRate), now, searchFrom
			if p.ramps(now) {
				p.limit = max(p.limit, searchFrom)
				p.from = p.limit
			}
		} else { // but a worker with little to do was not held up by it
			p.limit = min(p.Rate(now), max(2*p.goodput(now), 2*batch))
		}
		p.searching = now.Sub(p.met) < echo
		p.least = leastCut
		if since < echo {
			p.least = againCut
		}
		p.eased, p.refused = now, 0
	}
	p.refused += float64(refused)
}

// Rate returns how many messages a second may be claimed at now, 0 for any number.
func (p *Pace) Rate(now time.Time) float64 {
	if p.ramps(now) {
		return rampFrom * math.Pow(rampGrowth, now.Sub(p.began).Seconds())
	}
	if p.eased.IsZero() {
		return 0
	}
	since := now.Sub(p.eased).Seconds()
	cut := min(max(p.refused/p.limit, p.least), mostCut)
	bottom, ceiling := max(p.limit*(1-cut), leastRate), max(p.limit*(1-settling*cut), leastRate)
	if p.searching {
		return min(bottom, p.from) + search*max(p.limit, searchFrom)*since*since
	}
	t := since - math.Cbrt((ceiling-bottom)/growth)
	return ceiling + growth*t*t*t
}

// ramps reports whether the worker began with a backlog just now, and knows no limit.
func (p *Pace) ramps(now time.Time) bool {
	return !p.knowsLimit(now) && !p.began.IsZero() && now.Sub(p.began) < rampFor
}

// knowsLimit reports whether calls were refused within forgetting.
func (p *Pace) knowsLimit(now time.Time) bool {
	return !p.eased.IsZero() && now.Sub(p.eased) < forgetting
}

// Due returns when the next claim may be sent; it may be past.
func (p *Pace) Due() time.Time { return p.next }

// Sent records a claim for n messages.
func (p *Pace) Sent(now time.Time, n int) {
	if p.began.IsZero() {
		p.began = now
	}
	if rate := p.Rate(now); rate > 0 {
		p.next = later(p.next, now.Add(-burst)).Add(seconds(float64(n) / rate))
	}
}

// StartDue returns when the next claimed message may be started; it may be past. Jobs
// that started together would end together, and their calls come in a burst.
func (p *Pace) StartDue() time.Time { return p.start }

// Started records that a message was started at now.
func (p *Pace) Started(now time.Time) {
	ahead := startAhead
	if p.ramps(now) {
		ahead = rampAhead
	}
	if rate := p.Rate(now); rate > 0 {
		p.start = later(p.start, now.Add(-startBurst)).Add(seconds(1 / (rate * ahead)))
	}
}

// Got records that a claim for n messages brought some of them. The other messages
// may be claimed again; the call itself counts as one message.
func (p *Pace) Got(now time.Time, n, got int) {
	p.count(now, got)
	if got == 0 {
		p.began = time.Time{}
	}
	if rate := p.Rate(now); rate > 0 && got < n {
		p.next = p.next.Add(-seconds(float64(n-max(got, 1)) / rate))
	}
}

// count adds claimed messages to the current second.
func (p *Pace) count(now time.Time, n int) {
	switch passed := now.Sub(p.second); {
	case passed >= 2*time.Second:
		p.second, p.lastCount, p.now = now, 0, 0
	case passed >= time.Second:
		p.second, p.lastCount, p.now = p.second.Add(time.Second), p.now, 0
	}
	p.now += float64(n)
}

// goodput returns how many messages were claimed in the second before now.
func (p *Pace) goodput(now time.Time) float64 {
	p.count(now, 0)
	return p.now + p.lastCount*(1-now.Sub(p.second).Seconds())
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
