package worker

import (
	"slices"
	"sync"
)

// drainSet are those begun since the worker took up work: the worker's own, and
// those of single jobs that would not have been done in time. The most urgent one
// binds all.
type drainSet struct {
	mu    sync.Mutex
	all   []*drain
	limit *schedule // of the worker's own drains together; nil before the first
}

// add adds the drain of a single job. It keeps to the times of a drain of the
// worker that began before.
func (s *drainSet) add(d *drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit != nil {
		d.shorten(*s.limit)
	}
	s.all = append(s.all, d)
}

// remove removes the drain of a single job.
func (s *drainSet) remove(d *drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *drain) bool { return other == d })
}

// impose adds a drain of the worker, and shortens those under way to its times. It
// reports whether one was shortened.
func (s *drainSet) impose(d *drain) (shortened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit, _ := d.current()
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

// reset forgets the drains of work that is over.
func (s *drainSet) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.limit = nil, nil
}
