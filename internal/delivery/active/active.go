// Package active holds the active deliveries of a worker: the ids of their jobs, their
// messages, and a lock on each id. So one handler runs for an id, and a message that is
// claimed again continues its delivery.
package active

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

// Set holds the active deliveries.
type Set struct {
	mu     sync.Mutex
	ids    map[string]int          // deliveries by job id; a duplicate makes two of one id
	leases map[string]*queue.Lease // by message id
	locks  map[string]*Lock        // by job id; this one has the lock, those after it wait in order
}

// NewSet returns an empty Set.
func NewSet() *Set {
	return &Set{ids: map[string]int{}, leases: map[string]*queue.Lease{}, locks: map[string]*Lock{}}
}

// AddJob adds a delivery of the job. The caller must call RemoveJob.
func (s *Set) AddJob(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[id]++
}

// RemoveJob removes a delivery of the job.
func (s *Set) RemoveJob(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids[id]--; s.ids[id] <= 0 {
		delete(s.ids, id)
	}
}

// Jobs returns the ids of the jobs in order.
func (s *Set) Jobs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.ids))
}

// AddLease adds a message.
func (s *Set) AddLease(lease *queue.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[lease.ID] = lease
}

// Queues returns the queues of the messages, each once.
func (s *Set) Queues() (all []*queue.Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lease := range s.leases {
		if !slices.Contains(all, lease.Queue()) {
			all = append(all, lease.Queue())
		}
	}
	return all
}

// RemoveLease removes a message. It comes before the message's last call, so that
// a later claim of the message is a delivery of its own.
func (s *Set) RemoveLease(lease *queue.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[lease.ID] == lease {
		delete(s.leases, lease.ID)
	}
}

// Adopt reports whether the message of a new claim belongs to an active delivery,
// because its visibility timeout expired while storage could not be reached. The
// delivery continues under the new claim; otherwise its own worker would fence it.
func (s *Set) Adopt(later *queue.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease, ok := s.leases[later.ID]
	if ok {
		lease.Adopt(later)
	}
	return ok
}

// LockFor queues up for the lock on a job id. The caller must call Unlock.
func (s *Set) LockFor(id string) *Lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &Lock{set: s, id: id}
	last := s.locks[id]
	if last == nil {
		s.locks[id] = l
		return l
	}
	for l.position = 1; last.next != nil; l.position++ {
		last = last.next
	}
	last.next, l.granted = l, make(chan struct{})
	return l
}

// Lock is one delivery's lock on a job id, or its place in the queue for it. The
// holder may start the id's handler.
type Lock struct {
	set      *Set
	id       string
	granted  chan struct{} // closed when this delivery has the lock; nil if it had it at once
	position int           // in the queue, when it was joined
	next     *Lock         // in the queue; guarded by set.mu
}

// First reports whether the id had no other delivery.
func (l *Lock) First() bool { return l.position == 0 }

// Wait waits for the lock and reports whether it was granted in time. Only one
// delivery of an id waits, so that many duplicates do not fill the worker's slots.
func (l *Lock) Wait(ctx context.Context, atMost time.Duration) bool {
	if granted := l.First() || isClosed(l.granted); granted || l.position > 1 {
		return granted
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-l.granted:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// Unlock passes the lock to the next delivery. It may be called more than once.
func (l *Lock) Unlock() {
	s := l.set
	s.mu.Lock()
	defer s.mu.Unlock()
	holder := s.locks[l.id]
	if holder != l {
		for before := holder; before != nil; before = before.next {
			if before.next == l {
				before.next = l.next
			}
		}
		return
	}
	if l.next == nil {
		delete(s.locks, l.id)
		return
	}
	s.locks[l.id] = l.next
	close(l.next.granted)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
