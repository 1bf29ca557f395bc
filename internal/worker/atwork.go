package worker

import (
	"sync"
	"sync/atomic"
)

// atWork is the set of jobs whose handlers run. Through it all of them are
// reached at once: to save now, or to look again at how much time is left. Each
// job does what is asked in its own loop, so that its writes stay one after
// another.
type atWork struct {
	mu    sync.Mutex
	seats map[*seat]struct{}
}

// seat is the place of one job at work.
type seat struct {
	room   *atWork
	called chan struct{} // holds one: there is something to look at
	asked  []*round      // not answered yet; guarded by room.mu
}

// round is one request to all jobs at work to save what is not recorded.
type round struct {
	answers sync.WaitGroup
	jobs    int          // how many were at work
	unsaved atomic.Int64 // how many of them could not save
}

// enter takes a seat for a job. Whoever has one calls leave in the end.
func (a *atWork) enter() *seat {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &seat{room: a, called: make(chan struct{}, 1)}
	if a.seats == nil {
		a.seats = map[*seat]struct{}{}
	}
	a.seats[s] = struct{}{}
	return s
}

// leave gives the seat back. A save that was asked for is then part of how the
// job ends.
func (s *seat) leave() {
	s.room.mu.Lock()
	delete(s.room.seats, s)
	s.room.mu.Unlock()
	answer(s.take(), true)
}

// saveAll asks every job at work to save. It does not wait: the round does.
func (a *atWork) saveAll() *round {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &round{jobs: len(a.seats)}
	r.answers.Add(len(a.seats))
	for s := range a.seats {
		s.asked = append(s.asked, r)
		s.call()
	}
	return r
}

// wake makes every job at work look at what is asked of it.
func (a *atWork) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.seats {
		s.call()
	}
}

func (s *seat) call() {
	select {
	case s.called <- struct{}{}:
	default:
	}
}

// take returns the rounds to answer; whoever takes them answers them.
func (s *seat) take() []*round {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// answer tells the rounds how one job's save went.
func answer(rounds []*round, saved bool) {
	for _, r := range rounds {
		if !saved {
			r.unsaved.Add(1)
		}
		r.answers.Done()
	}
}

// wait returns when every job has answered.
func (r *round) wait() { r.answers.Wait() }
