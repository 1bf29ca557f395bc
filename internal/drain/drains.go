package drain

import (
	"slices"
	"sync"
)

// Set are those begun since the worker took up work: the worker's own, and
// those of single jobs that would not have been done in time. The most urgent one
// binds all.
type Set struct {
	mu    sync.Mutex
	all   []*Drain
	limit *Schedule // of the worker's own drains together; nil before the first
}

// Add adds the drain of a single job. It keeps to the times of a drain of the
// worker that began before.
func (s *Set) Add(d *Drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit != nil {
		d.shorten(*s.limit)
	}
	s.all = append(s.all, d)
}

// Remove removes the drain of a single job.
func (s *Set) Remove(d *Drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *Drain) bool { return other == d })
}

// Impose adds a drain of the worker, and shortens those under way to its times. It
// reports whether one was shortened.
func (s *Set) Impose(d *Drain) (shortened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit, _ := d.Schedule()
	if s.limit != nil {
		limit = limit.earliest(*s.limit)
	}
	s.limit = &limit
	for _, other := range s.all {
		if other.shorten(limit) {
			shortened = true
		}
	}
	d.shorten(limit)
	s.all = append(s.all, d)
	return shortened
}

// Reset forgets the drains of work that is over.
func (s *Set) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.limit = nil, nil
}

// Len returns how many drains are active.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
