package imds

import (
	"slices"
	"time"
)

// traffic is what arrived of one kind of request from one VM.
type traffic struct {
	requests int
	refused  int
	busiest  int
	open     int    // accepted and not answered yet
	arrived  window // every request
	accepted window // those within the limits
}

// arrive counts a request and reports whether it is within the limits: so many
// in a second, and so many at once; none if they are not positive.
func (t *traffic) arrive(now time.Time, perSecond, atOnce int) bool {
	t.requests++
	t.busiest = max(t.busiest, t.arrived.count(now)+1)
	t.arrived.add(now)
	if perSecond > 0 && t.accepted.count(now) >= perSecond || atOnce > 0 && t.open >= atOnce {
		t.refused++
		return false
	}
	t.accepted.add(now)
	t.open++
	return true
}

// window counts what happened within the last second.
type window struct{ times []time.Time }

func (w *window) count(now time.Time) int {
	w.times = slices.DeleteFunc(w.times, func(t time.Time) bool { return now.Sub(t) >= time.Second })
	return len(w.times)
}

func (w *window) add(now time.Time) { w.times = append(w.times, now) }
