package metrics

import "time"

// lasting adds up for how long a state lasted that comes and goes. The zero value has not
// begun. It has no lock of its own.
type lasting struct {
	since time.Time     // when it began; zero while it does not last
	total time.Duration // in all, up to since
}

// begin begins the state at a time, unless it lasts already.
func (l *lasting) begin(at time.Time) {
	if l.since.IsZero() {
		l.since = at
	}
}

// end ends the state, if it lasts.
func (l *lasting) end(at time.Time) {
	if !l.since.IsZero() {
		l.total += max(at.Sub(l.since), 0)
		l.since = time.Time{}
	}
}

// seconds returns how long it lasted up to now.
func (l *lasting) seconds(now time.Time) float64 {
	total := l.total
	if !l.since.IsZero() {
		total += max(now.Sub(l.since), 0)
	}
	return total.Seconds()
}
