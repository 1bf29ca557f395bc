package renewal

import (
	"sync"
	"time"
)

// The visibility timeout is short, so that the jobs of a dead worker are resumed soon,
// and longer under throttling that lasts, because renewals share the queue's rate limit.
const (
	// DefaultVisibility is the shortest timeout by default. MinVisibility is the
	// shortest that can be configured: renewals come every third of it, and need time
	// for retries. MaxVisibility is the longest.
	DefaultVisibility = 30 * time.Second
	MinVisibility     = 3 * time.Second

	MaxVisibility = 5 * time.Minute
)

// renewShare is the share of the timeout after which a lease is renewed.
const renewShare = 3

const (
	// period is how long calls are counted before they are judged: a round of renewals
	// with the default timeout.
	period = DefaultVisibility / renewShare

	// growAfter is the number of throttled periods in a row from which on the timeout
	// grows. A burst of refusals has an end, and renewals that are refused until then are
	// repeated in time. Until the timeout grew, a worker's death must not hide its jobs
	// for longer.
	growAfter = 3

	// shrinkBy is the share of the timeout by which it shrinks in a period.
	shrinkBy = 3
)

// pace is the visibility timeout that all messages of a worker have. It doubles at most
// once in a round of renewals, after growAfter periods in which storage refused more than
// half of the renewals and answered others. It shrinks in every other period, also without
// a renewal. A period in which all were refused is left out: that is an outage, which
// fewer renewals would not end.
type pace struct {
	least time.Duration

	mu             sync.Mutex
	visibility     time.Duration
	began          time.Time // of the present period; zero before the first call
	calls, refused int       // in it
	throttled      int       // such periods in a row
	grew           time.Time // when the timeout doubled last
}

func newPace(least time.Duration) *pace { return &pace{least: least, visibility: least} }

// current returns the timeout to ask for at now, and how long after asking to renew.
func (p *pace) current(now time.Time) (visibility, renewAfter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge(now)
	return p.visibility, p.visibility / renewShare
}

// observe learns from a renewal that ended at now.
func (p *pace) observe(now time.Time, throttled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge(now)
	if p.began.IsZero() {
		p.began = now
	}
	p.calls++
	if throttled {
		p.refused++
	}
}

// judge ends the periods that are over at now. The caller holds mu.
func (p *pace) judge(now time.Time) {
	for !p.began.IsZero() && now.Sub(p.began) >= period {
		end := p.began.Add(period)
		switch {
		case p.calls > 0 && p.refused == p.calls:
		case 2*p.refused > p.calls:
			p.throttled++
			if p.throttled >= growAfter && end.Sub(p.grew) >= p.visibility/renewShare {
				p.visibility, p.grew = max(p.visibility, min(2*p.visibility, MaxVisibility)), end
			}
		default:
			p.throttled = 0
			p.visibility = max(p.visibility-p.visibility/shrinkBy, p.least)
		}
		p.began, p.calls, p.refused = end, 0, 0
		if p.visibility == p.least && p.throttled == 0 {
			p.began = time.Time{} // the next call begins a period
		}
	}
}
