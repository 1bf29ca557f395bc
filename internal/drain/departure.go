package drain

import (
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
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

	// sameTime is how far two readings of one NotBefore may be apart: the
	// service's clock is known to a second.
	sameTime = 3 * time.Second
)

// Departure is what is announced for this VM short of a drain. The watch sets it,
// the claim loop acts on it, and jobs look at it.
type Departure struct {
	mu      sync.Mutex
	state   DepartureState
	changed chan struct{} // closed when the watch set something new
}

// DepartureState is an outlook at one moment.
type DepartureState struct {
	Event   preempt.Verdict // what takes the VM away; of no meaning while gone is zero
	Gone    time.Time       // when the VM may go, by the local clock; zero for never
	Closed  bool            // nothing is claimed any more
	MeanJob time.Duration   // how long jobs usually took when claiming ended; 0 if not known
	Advised bool            // an eviction is likelier than usual: buffer no messages
	Changed <-chan struct{} // closed when the prospect is not the newest any more
}

func NewDeparture() *Departure {
	return &Departure{changed: make(chan struct{})}
}

// Set takes note of a decision made at the local time now.
func (o *Departure) Set(d preempt.Decision, now time.Time) {
	next := DepartureState{Advised: d.Advised()}
	if v, ok := d.Departure(); ok {
		next.Event, next.Gone = v, now.Add(v.Budget)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if next.Gone.Sub(o.state.Gone).Abs() < sameTime { // claiming does not open again for a second
		next.Closed, next.MeanJob = o.state.Closed, o.state.MeanJob
	}
	o.state = next
	close(o.changed)
	o.changed = make(chan struct{})
}

// Current returns the outlook as it is.
func (o *Departure) Current() DepartureState {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.state
	p.Changed = o.changed
	return p
}

// CloseIfDue returns the outlook and whether claiming ends at this moment, which
// the time says together with how long jobs usually take.
func (o *Departure) CloseIfDue(now time.Time, usual time.Duration) (p DepartureState, closing bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.state.Closed && !o.state.Gone.IsZero() && !now.Before(o.state.closesAt(usual)) {
		o.state.Closed, o.state.MeanJob, closing = true, usual, true
	}
	p = o.state
	p.Changed = o.changed
	return p, closing
}

// closesAt is when claiming ends.
func (p DepartureState) closesAt(usual time.Duration) time.Time {
	return p.Gone.Add(-max(minLead, usual))
}

// UntilClose returns how long claiming goes on, limit at most.
func (p DepartureState) UntilClose(now time.Time, usual, limit time.Duration) time.Duration {
	if p.Gone.IsZero() {
		return limit
	}
	return min(p.closesAt(usual).Sub(now), limit)
}

// LeavesAt is when the drain of what is still in hand begins.
func (p DepartureState) LeavesAt() time.Time { return p.Gone.Add(-preempt.DrainMargin) }

// Notice is that of the drain which ends the notice, begun at now.
func (p DepartureState) Notice(now time.Time) preempt.Notice {
	return p.Event.Leave(p.Gone.Sub(now)).Notice(now)
}

// MayContinue reports whether a job need not stop yet: claiming goes on, or the job
// should be done in time.
func (p DepartureState) MayContinue(c Estimate, now time.Time) bool {
	if !p.Closed {
		return true
	}
	left, known := c.remaining(now, p.MeanJob)
	return known && !now.Add(left).After(p.LeavesAt())
}

// Estimate is how far a job has come in this run.
type Estimate struct {
	Begun    time.Time
	From, To float64 // the fraction done at the beginning, and now
}

// remaining estimates how long the job will still take: as long for the rest as it
// took for the part done in this run. A job that does not say how far it is
// should take as long as jobs usually do. One that has taken longer, or of which
// nothing is known, may take any time.
func (c Estimate) remaining(now time.Time, usual time.Duration) (left time.Duration, known bool) {
	spent := now.Sub(c.Begun)
	done := c.To - c.From
	switch {
	case done > 0:
		const most = 1 << 62
		rest := float64(spent) * max(1-c.To, 0) / done
		return time.Duration(min(rest, most)), true
	case usual > spent:
		return usual - spent, true
	default:
		return 0, false
	}
}
