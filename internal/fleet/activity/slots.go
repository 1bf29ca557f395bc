package activity

import (
	"sync"
	"time"
)

// Slots adds up a worker's slot time by use. The times of all states together are the
// number of slots times the time since [NewSlots].
type Slots struct {
	mu      sync.Mutex
	total   int       // slots
	since   time.Time // up to when the times are
	working bool      // the worker is in the state that takes jobs
	claimed int       // messages in slots
	running int       // slots with a running handler
	times   Times
}

// Times is the time of slots by their use.
type Times struct {
	Handler time.Duration // a handler ran
	Around  time.Duration // a message was claimed, no handler ran
	Idle    time.Duration // free, the worker takes jobs
	Closed  time.Duration // free, the worker takes none
}

// Total returns the time of all states together.
func (t Times) Total() time.Duration { return t.Handler + t.Around + t.Idle + t.Closed }

func (t Times) minus(o Times) Times {
	return Times{t.Handler - o.Handler, t.Around - o.Around, t.Idle - o.Idle, t.Closed - o.Closed}
}

// NewSlots returns that many slots of a worker that takes no jobs yet.
func NewSlots(total int) *Slots { return &Slots{total: total, since: time.Now()} }

// settle adds the time up to now. The caller holds mu.
func (s *Slots) settle(now time.Time) {
	passed := now.Sub(s.since)
	s.since = now
	free := time.Duration(max(s.total-s.claimed, 0)) * passed
	s.times.Handler += time.Duration(max(s.running, 0)) * passed
	s.times.Around += time.Duration(max(s.claimed-s.running, 0)) * passed
	if s.working {
		s.times.Idle += free
	} else {
		s.times.Closed += free
	}
}

// Change says by how many more messages are in slots and handlers run from now on.
func (s *Slots) Change(claimed, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(time.Now())
	s.claimed += claimed
	s.running += running
}

// Work says whether the worker takes jobs from now on.
func (s *Slots) Work(working bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(time.Now())
	s.working = working
}

// Times returns the use of the slots up to now.
func (s *Slots) Times() Times {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(time.Now())
	return s.times
}
