package drain

import (
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
)

const (
	// minLead is how long before the VM may go claiming ends at the latest.
	minLead = 5 * time.Minute

	// sameTime is how far two readings of one NotBefore may differ: the service's
	// clock is known to a second.
	sameTime = 3 * time.Second
)

// Departure is the announced departure of this VM, as long as there is time before
// its drain. The event handler sets it, the claim loop closes it, and running jobs
// ask whether they can finish before it.
type Departure struct {
	mu      sync.Mutex
	state   DepartureState
	changed chan struct{} // closed when the state is replaced
}

// DepartureState is a [Departure] at one moment.
type DepartureState struct {
	Event   preempt.Verdict // the event that takes the VM away; meaningless while Gone is zero
	Gone    time.Time       // when the VM may go, by the local clock; zero if nothing is announced
	Closed  bool            // claiming has ended
	MeanJob time.Duration   // how long jobs took when claiming ended; 0 if unknown
	Advised bool            // an eviction is likelier than usual: buffer no messages
	Changed <-chan struct{} // closed when this state is outdated
}

// NewDeparture returns a departure that is not announced.
func NewDeparture() *Departure {
	return &Departure{changed: make(chan struct{})}
}

// Set records a decision made at the local time now.
func (d *Departure) Set(decision preempt.Decision, now time.Time) {
	next := DepartureState{Advised: decision.Advised()}
	if v, ok := decision.Departure(); ok {
		next.Event, next.Gone = v, now.Add(v.Budget)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if next.Gone.Sub(d.state.Gone).Abs() < sameTime { // claiming does not open again for a second
		next.Closed, next.MeanJob = d.state.Closed, d.state.MeanJob
	}
	d.state = next
	close(d.changed)
	d.changed = make(chan struct{})
}

// Current returns the state as it is now.
func (d *Departure) Current() DepartureState {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.state
	s.Changed = d.changed
	return s
}

// Advised reports whether an eviction is likelier than usual.
func (d *Departure) Advised() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state.Advised
}

// Closed reports whether claiming has ended.
func (d *Departure) Closed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state.Closed
}

// CloseIfDue returns the state, and whether claiming ends at this moment. meanJob
// is how long jobs take, 0 if that is unknown.
func (d *Departure) CloseIfDue(now time.Time, meanJob time.Duration) (s DepartureState, closing bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.state.Closed && !d.state.Gone.IsZero() && !now.Before(d.state.closesAt(meanJob)) {
		d.state.Closed, d.state.MeanJob, closing = true, meanJob, true
	}
	s = d.state
	s.Changed = d.changed
	return s, closing
}

// closesAt is when claiming ends.
func (s DepartureState) closesAt(meanJob time.Duration) time.Time {
	return s.Gone.Add(-max(minLead, meanJob))
}

// UntilClose returns how long claiming continues, limit at most.
func (s DepartureState) UntilClose(now time.Time, meanJob, limit time.Duration) time.Duration {
	if s.Gone.IsZero() {
		return limit
	}
	return min(s.closesAt(meanJob).Sub(now), limit)
}

// LeavesAt is when the drain of the jobs that are still active begins.
func (s DepartureState) LeavesAt() time.Time { return s.Gone.Add(-preempt.DrainMargin) }

// Notice returns the notice for that drain, begun at now.
func (s DepartureState) Notice(now time.Time) preempt.Notice {
	return s.Event.Leave(s.Gone.Sub(now)).Notice(now)
}

// MayContinue reports whether a job may continue for now: claiming continues, or
// the job should finish in time.
func (s DepartureState) MayContinue(e Estimate, now time.Time) bool {
	if !s.Closed {
		return true
	}
	left, known := e.remaining(now, s.MeanJob)
	return known && !now.Add(left).After(s.LeavesAt())
}

// Estimate says how far a job has come in this run.
type Estimate struct {
	Begun    time.Time
	From, To float64 // the fraction done at the beginning, and now
}

// remaining estimates how long the job will still take: as long for the rest as it
// took for the part done in this run. A job that reports no fraction should take as long
// as jobs do in the mean. A job that has taken longer, or without any known time, may
// take any time.
func (e Estimate) remaining(now time.Time, meanJob time.Duration) (left time.Duration, known bool) {
	spent := now.Sub(e.Begun)
	done := e.To - e.From
	switch {
	case done > 0:
		const most = 1 << 62
		rest := float64(spent) * max(1-e.To, 0) / done
		return time.Duration(min(rest, most)), true
	case meanJob > spent:
		return meanJob - spent, true
	default:
		return 0, false
	}
}
