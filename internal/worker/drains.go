package worker

import (
	"slices"
	"sync"
)

// drains are those begun since the worker took up work: the worker's own, and
// those of single jobs that would not have been done in time. The most urgent one
// binds all.
type drains struct {
	mu    sync.Mutex
	all   []*drain
	limit *times // of the worker's own drains together; nil before the first
}

// begin adds the drain of a single job. It keeps to the times of a drain of the
// worker that began before.
func (s *drains) begin(d *drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit != nil {
		d.shorten(*s.limit)
	}
	s.all = append(s.all, d)
}

// end removes the drain of a single job.
func (s *drains) end(d *drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *drain) bool { return other == d })
}

// press adds a drain of the worker, and shortens those under way to its times. It
// reports whether one was shortened.
func (s *drains) press(d *drain) (shortened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit, _ := d.current()
	if s.limit != nil {
		limit = limit.within(*s.limit)
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
func (s *drains) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.limit = nil, nil
}
