package worker

import (
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/job"
)

// A notice of minutes or days is used up, not obeyed at once:
//
//	announced ── claiming goes on ──▶ closed ── what can be finished is ──▶ leave ─▶ gone
//	                                  │ the longer of 5 min and             30 s before,
//	                                  │ the usual time of a job,            or when nothing
//	                                  │ before gone                         is in hand
const (
	// minLead is how long before the VM may go claiming ends at the latest.
	minLead = 5 * time.Minute

	// recheckEvery is how often a running job's estimate is checked once claiming
	// has ended.
	recheckEvery = 5 * time.Second

	// sameTime is how far two readings of one NotBefore may be apart: the
	// service's clock is known to a second.
	sameTime = 3 * time.Second
)

// departure is what is announced for this VM short of a drain. The watch sets it,
// the claim loop acts on it, and jobs look at it.
type departure struct {
	leave func() // begins the drain that ends the notice

	mu      sync.Mutex
	state   departureState
	changed chan struct{} // closed when the watch set something new
}

// departureState is an outlook at one moment.
type departureState struct {
	event   preempt.Verdict // what takes the VM away; of no meaning while gone is zero
	gone    time.Time       // when the VM may go, by the local clock; zero for never
	closed  bool            // nothing is claimed any more
	meanJob time.Duration   // how long jobs usually took when claiming ended; 0 if not known
	advised bool            // an eviction is likelier than usual: buffer no messages
	changed <-chan struct{} // closed when the prospect is not the newest any more
}

func newDeparture(leave func()) *departure {
	return &departure{leave: leave, changed: make(chan struct{})}
}

// set takes note of a decision made at the local time now.
func (o *departure) set(d preempt.Decision, now time.Time) {
	next := departureState{advised: d.Advised()}
	if v, ok := d.Departure(); ok {
		next.event, next.gone = v, now.Add(v.Budget)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if next.gone.Sub(o.state.gone).Abs() < sameTime { // claiming does not open again for a second
		next.closed, next.meanJob = o.state.closed, o.state.meanJob
	}
	o.state = next
	close(o.changed)
	o.changed = make(chan struct{})
}

// current returns the outlook as it is.
func (o *departure) current() departureState {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.state
	p.changed = o.changed
	return p
}

// closeIfDue returns the outlook and whether claiming ends at this moment, which
// the time says together with how long jobs usually take.
func (o *departure) closeIfDue(now time.Time, usual time.Duration) (p departureState, closing bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.state.closed && !o.state.gone.IsZero() && !now.Before(o.state.closesAt(usual)) {
		o.state.closed, o.state.meanJob, closing = true, usual, true
	}
	p = o.state
	p.changed = o.changed
	return p, closing
}

// closesAt is when claiming ends.
func (p departureState) closesAt(usual time.Duration) time.Time {
	return p.gone.Add(-max(minLead, usual))
}

// untilClose returns how long claiming goes on, limit at most.
func (p departureState) untilClose(now time.Time, usual, limit time.Duration) time.Duration {
	if p.gone.IsZero() {
		return limit
	}
	return min(p.closesAt(usual).Sub(now), limit)
}

// leavesAt is when the drain of what is still in hand begins.
func (p departureState) leavesAt() time.Time { return p.gone.Add(-preempt.DrainMargin) }

// notice is that of the drain which ends the notice, begun at now.
func (p departureState) notice(now time.Time) preempt.Notice {
	return p.event.Leave(p.gone.Sub(now)).Notice(now)
}

// mayContinue reports whether a job need not stop yet: claiming goes on, or the job
// should be done in time.
func (p departureState) mayContinue(c estimate, now time.Time) bool {
	if !p.closed {
		return true
	}
	left, known := c.remaining(now, p.meanJob)
	return known && !now.Add(left).After(p.leavesAt())
}

// estimate is how far a job has come in this run.
type estimate struct {
	begun    time.Time
	from, to float64 // the fraction done at the beginning, and now
}

// remaining estimates how long the job will still take: as long for the rest as it
// took for the part done in this run. A job that does not say how far it is
// should take as long as jobs usually do. One that has taken longer, or of which
// nothing is known, may take any time.
func (c estimate) remaining(now time.Time, usual time.Duration) (left time.Duration, known bool) {
	spent := now.Sub(c.begun)
	done := c.to - c.from
	switch {
	case done > 0:
		const most = 1 << 62
		rest := float64(spent) * max(1-c.to, 0) / done
		return time.Duration(min(rest, most)), true
	case usual > spent:
		return usual - spent, true
	default:
		return 0, false
	}
}

// estimate is how far this job has come since its handler was called.
func (d *delivery) estimate(begun time.Time) estimate {
	return estimate{begun: begun, from: d.startFraction, to: fractionOf(d.job.Latest(), d.startFraction)}
}

// fractionOf is that of a report, or otherwise where there is none.
func fractionOf(p *job.Progress, otherwise float64) float64 {
	if p == nil {
		return otherwise
	}
	return p.Fraction
}

// departureDrain returns the drain of this job alone if it would not be done before
// the VM goes, otherwise nil.
func (d *delivery) departureDrain(begun, now time.Time) *drain {
	p := d.departure.current()
	if p.mayContinue(d.estimate(begun), now) {
		return nil
	}
	return drainForNotice(p.notice(now))
}
