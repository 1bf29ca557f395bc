package worker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

// registry holds the active deliveries: the ids of their jobs, their messages, and
// the lock on each id that lets one delivery at a time start the id's handler.
type registry struct {
	mu     sync.Mutex
	ids    map[string]int          // deliveries by job id; a duplicate makes two of one id
	leases map[string]*queue.Lease // by message id
	locks  map[string][]*idLock    // by job id; the first has the lock, the others wait for it in order
}

func newRegistry() *registry {
	return &registry{ids: map[string]int{}, leases: map[string]*queue.Lease{}, locks: map[string][]*idLock{}}
}

// addJob adds a delivery of the job and returns the function that removes it.
func (r *registry) addJob(id string) (remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[id]++
	return func() { r.removeJob(id) }
}

func (r *registry) removeJob(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids[id]--; r.ids[id] <= 0 {
		delete(r.ids, id)
	}
}

// jobs returns the ids of the jobs in order.
func (r *registry) jobs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.ids))
}

// addLease adds a message.
func (r *registry) addLease(lease *queue.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases[lease.ID] = lease
}

// removeLease removes a message. It comes before the message's last call, so that
// a later claim of the message is a delivery of its own.
func (r *registry) removeLease(lease *queue.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leases[lease.ID] == lease {
		delete(r.leases, lease.ID)
	}
}

// adopt reports whether the message of a new claim belongs to an active delivery,
// because its visibility timeout expired while storage could not be reached. The
// delivery continues under the new claim; otherwise its own worker would fence it.
func (r *registry) adopt(later *queue.Lease) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	lease, ok := r.leases[later.ID]
	if ok {
		lease.Adopt(later)
	}
	return ok
}

// lockFor queues up for the lock on a job id. The caller must call unlock.
func (r *registry) lockFor(id string) *idLock {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &idLock{registry: r, id: id, granted: make(chan struct{}), position: len(r.locks[id])}
	if l.position == 0 {
		close(l.granted)
	}
	r.locks[id] = append(r.locks[id], l)
	return l
}

// idLock is one delivery's lock on a job id, or its place in the queue for it. The
// holder may start the id's handler.
type idLock struct {
	registry *registry
	id       string
	granted  chan struct{} // closed when this delivery has the lock
	position int           // in the queue, when it was joined
}

// first reports whether the id had no other delivery.
func (l *idLock) first() bool { return l.position == 0 }

// lock waits for the lock and reports whether it was granted in time. Only one
// delivery of an id waits, so that many duplicates do not fill the worker's slots.
func (l *idLock) lock(ctx context.Context, atMost time.Duration) bool {
	if l.position > 1 {
		return isClosed(l.granted)
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

// unlock passes the lock to the next delivery. It may be called more than once.
func (l *idLock) unlock() {
	l.registry.mu.Lock()
	defer l.registry.mu.Unlock()
	queue := slices.DeleteFunc(l.registry.locks[l.id], func(other *idLock) bool { return other == l })
	l.registry.locks[l.id] = queue
	if len(queue) == 0 {
		delete(l.registry.locks, l.id)
	} else if !isClosed(queue[0].granted) {
		close(queue[0].granted)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
