package worker

import (
	"sync"
	"sync/atomic"
)

// runningJobs is the set of jobs whose handlers run. Through it all of them are
// reached at once: to save now, or to look again at how much time is left. Each
// job does what is asked in its own loop, so that its writes stay one after
// another.
type runningJobs struct {
	mu   sync.Mutex
	jobs map[*runningJob]struct{}
}

// runningJob is the place of one job at work.
type runningJob struct {
	set      *runningJobs
	woken    chan struct{}  // holds one: there is something to look at
	requests []*saveRequest // not answered yet; guarded by room.mu
}

// saveRequest is one request to all jobs at work to save what is not recorded.
type saveRequest struct {
	answers sync.WaitGroup
	jobs    int          // how many were at work
	unsaved atomic.Int64 // how many of them could not save
}

// add takes a seat for a job. Whoever has one calls leave in the end.
func (a *runningJobs) add() *runningJob {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &runningJob{set: a, woken: make(chan struct{}, 1)}
	if a.jobs == nil {
		a.jobs = map[*runningJob]struct{}{}
	}
	a.jobs[s] = struct{}{}
	return s
}

// remove gives the seat back. A save that was asked for is then part of how the
// job ends.
func (s *runningJob) remove() {
	s.set.mu.Lock()
	delete(s.set.jobs, s)
	s.set.mu.Unlock()
	answer(s.takeRequests(), true)
}

// saveAll asks every job at work to save. It does not wait: the round does.
func (a *runningJobs) saveAll() *saveRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &saveRequest{jobs: len(a.jobs)}
	r.answers.Add(len(a.jobs))
	for s := range a.jobs {
		s.requests = append(s.requests, r)
		s.wake()
	}
	return r
}

// wakeAll makes every job at work look at what is asked of it.
func (a *runningJobs) wakeAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.jobs {
		s.wake()
	}
}

func (s *runningJob) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// takeRequests returns the rounds to answer; whoever takes them answers them.
func (s *runningJob) takeRequests() []*saveRequest {
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	asked := s.requests
	s.requests = nil
	return asked
}

// answer tells the rounds how one job's save went.
func answer(rounds []*saveRequest, saved bool) {
	for _, r := range rounds {
		if !saved {
			r.unsaved.Add(1)
		}
		r.answers.Done()
	}
}

// wait returns when every job has answered.
func (r *saveRequest) wait() { r.answers.Wait() }
