package activity

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Earlier are the ages of the readings that a worker reports in its heartbeat, so that a
// reader sees whether a queue grew, and whether it still does. A reading may be older or
// younger by a half.
const (
	Earlier      = 20 * time.Second
	MuchEarlier  = 45 * time.Second
	earlierSlack = 2
)

// IsEarlier reports whether the age of a reading is about the given one.
func IsEarlier(age, wanted time.Duration) bool { return (age - wanted).Abs() <= wanted/earlierSlack }

// QueueReading is about how many messages a queue had.
type QueueReading struct {
	Queue    string
	Messages int
	At       time.Time
}

// QueueHistory keeps the readings of the queues for a while. The zero value is empty. Its methods
// may be called from several goroutines.
type QueueHistory struct {
	mu       sync.Mutex
	readings map[string][]QueueReading // by queue, the oldest first
}

// Add adds a reading.
func (h *QueueHistory) Add(r QueueReading) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readings == nil {
		h.readings = map[string][]QueueReading{}
	}
	kept := slices.DeleteFunc(h.readings[r.Queue], func(old QueueReading) bool {
		return r.At.Sub(old.At) > MuchEarlier+MuchEarlier/earlierSlack
	})
	h.readings[r.Queue] = append(kept, r)
}

// Report returns for each queue the readings of about [MuchEarlier] and [Earlier], as far as
// there are any, in the order of the queues' names.
func (h *QueueHistory) Report(now time.Time) (all []QueueReading) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, readings := range h.readings {
		for _, wanted := range []time.Duration{MuchEarlier, Earlier} {
			if r, ok := nearest(readings, now, wanted); ok {
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(a, b QueueReading) int { return cmp.Or(strings.Compare(a.Queue, b.Queue), a.At.Compare(b.At)) })
	return all
}

// nearest returns the reading whose age is nearest to the wanted one, if it is about that.
func nearest(readings []QueueReading, now time.Time, wanted time.Duration) (best QueueReading, ok bool) {
	off := func(r QueueReading) time.Duration { return (now.Sub(r.At) - wanted).Abs() }
	for _, r := range readings {
		if IsEarlier(now.Sub(r.At), wanted) && (!ok || off(r) < off(best)) {
			best, ok = r, true
		}
	}
	return best, ok
}
