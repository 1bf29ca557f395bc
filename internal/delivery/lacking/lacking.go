// Package lacking counts the jobs that wait because no live worker has a handler for their
// kind.
//
// A worker that claims the message of such a job hides it for 5 s or longer, and
// then any worker may claim it. So each message is hidden by one worker at a time, and the
// sum over all workers of the messages that each hides now is the number of these jobs.
package lacking

import (
	"sync"
	"time"
)

const (
	// most is how many messages a worker remembers. Further ones are not counted.
	most = 10_000

	// grace is how long a message still counts when it is visible again: until then a worker
	// has probably claimed it.
	grace = 5 * time.Second
)

// message is the message of a job.
type message struct{ kind, job string }

// Set holds the messages that a worker hides. The zero value is empty.
type Set struct {
	mu     sync.Mutex
	hidden map[message]time.Time // until when each counts
}

// Hide adds the message of a job that is hidden for a time from now on.
func (s *Set) Hide(kind, job string, now time.Time, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hidden == nil {
		s.hidden = map[message]time.Time{}
	}
	if len(s.hidden) >= most {
		s.forget(now)
	}
	if len(s.hidden) < most {
		s.hidden[message{kind, job}] = now.Add(d + grace)
	}
}

// Found removes the message of a job whose kind a worker has, or that was dead-lettered.
func (s *Set) Found(kind, job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hidden, message{kind, job})
}

// Count returns how many jobs of each kind wait at now; nil for none.
func (s *Set) Count(now time.Time) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	if len(s.hidden) == 0 {
		return nil
	}
	jobs := map[string]int{}
	for m := range s.hidden {
		jobs[m.kind]++
	}
	return jobs
}

// forget removes messages that no longer count. The caller holds mu.
func (s *Set) forget(now time.Time) {
	for m, until := range s.hidden {
		if !now.Before(until) {
			delete(s.hidden, m)
		}
	}
}
